-- release_batches: move tasks of committed batches to their state tables. The state of these tasks does not change:
-- they have had it since the commit.

-- name: release_batches
-- Counts the moved tasks as enqueued, by channel.
-- 1 at, 2 how many at most
WITH few AS MATERIALIZED (
    SELECT s.ctid AS row_location, s.task_id, s.due_at, c.committed_at
    FROM /*schema*/enqueue_batch AS c
    INNER JOIN /*schema*/enqueue_batch_task AS s ON s.batch_id = c.id
    WHERE c.committed_at IS NOT NULL
        AND s.holder IS NULL
    ORDER BY c.id, s.position
    LIMIT $2
    FOR UPDATE OF s SKIP LOCKED
),
gone AS (
    DELETE FROM /*schema*/enqueue_batch_task
    WHERE ctid = ANY (ARRAY (SELECT row_location FROM few))
    RETURNING task_id
),
moved AS MATERIALIZED (
    SELECT s.task_id, s.due_at, s.committed_at, t.queue, t.priority, t.upstream, t.function, t.tenant
    FROM few AS s
    INNER JOIN gone ON gone.task_id = s.task_id
    CROSS JOIN LATERAL (
        SELECT x.queue, x.priority, x.upstream, x.function, x.tenant
        FROM /*schema*/task AS x
        WHERE x.id = s.task_id
        LIMIT 1
    ) AS t
),
ready AS (
    INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
    SELECT m.task_id, m.queue, m.priority, m.upstream, m.function, m.tenant, m.committed_at, m.committed_at, 0
    FROM moved AS m
    WHERE m.due_at IS NULL
),
scheduled AS (
    INSERT INTO /*schema*/waiting (
        task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run
    )
    SELECT
        m.task_id, 'scheduled', m.due_at, m.queue, m.priority, m.upstream, m.function, m.tenant, m.due_at, 0
    FROM moved AS m
    WHERE m.due_at IS NOT NULL
),
counted AS (
    INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, enqueued)
    SELECT floor(/*schema*/moment($1) / 60), m.queue, m.function, m.upstream, m.tenant, count(*)
    FROM moved AS m
    GROUP BY m.queue, m.function, m.upstream, m.tenant
)
SELECT count(*)
FROM moved
