-- cancel: end tasks that are not running, and ask running ones to stop. A task may change its state during the
-- search, so the statements are repeated until each task was found or is final. If another transaction is moving a
-- task, a statement waits for it, and then finds the row gone.
-- moves: scheduled -> cancelled, held -> cancelled, suspended -> cancelled, ready -> cancelled, retrying -> cancelled

-- name: ask
-- 1 ids: array of uuid, 2 at, 3 whether by force
UPDATE /*schema*/running AS r
SET
    cancel_requested_at = coalesce(r.cancel_requested_at, /*schema*/moment($2)),
    cancel_forced = r.cancel_forced OR $3
FROM (
    SELECT task_id
    FROM /*schema*/running
    WHERE task_id = ANY($1::uuid[])
    ORDER BY task_id
    FOR UPDATE
) AS locked
WHERE r.task_id = locked.task_id
RETURNING r.task_id

-- name: end
-- 1 ids: array of uuid, 2 at
WITH left_ready AS (
    DELETE FROM /*schema*/ready
    WHERE task_id = ANY(ARRAY(
        SELECT task_id FROM /*schema*/ready WHERE task_id = ANY($1::uuid[]) ORDER BY task_id FOR UPDATE
    ))
    RETURNING task_id, run, ready_at
),
left_waiting AS (
    DELETE FROM /*schema*/waiting
    WHERE task_id = ANY(ARRAY(
        SELECT task_id FROM /*schema*/waiting WHERE task_id = ANY($1::uuid[]) ORDER BY task_id FOR UPDATE
    ))
    RETURNING task_id, run, due_at
),
left_batch AS (
    DELETE FROM /*schema*/enqueue_batch_task AS s
    USING /*schema*/enqueue_batch AS c
    WHERE s.task_id = ANY($1::uuid[])
        AND s.holder IS NULL
        AND c.id = s.batch_id
        AND c.committed_at IS NOT NULL
    RETURNING s.task_id, s.due_at
),
gone AS (
    SELECT task_id, run, ready_at, 0 AS enqueued FROM left_ready
    UNION ALL
    SELECT task_id, run, due_at, 0 FROM left_waiting
    UNION ALL
    SELECT task_id, 0, due_at, 1 FROM left_batch
),
at AS (
    SELECT /*schema*/moment($2) AS now
),
kept AS (
    INSERT INTO /*schema*/archive (task_id, state, run, ready_at, finished_at)
    SELECT g.task_id, 'cancelled', g.run, g.ready_at, at.now
    FROM gone AS g
    CROSS JOIN at
),
counted AS (
    INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, enqueued, cancelled, first_final_at)
    SELECT floor(at.now / 60), t.queue, t.function, t.upstream, t.tenant, sum(g.enqueued), count(*), at.now
    FROM gone AS g
    JOIN /*schema*/task AS t ON t.id = g.task_id
    CROSS JOIN at
    GROUP BY at.now, t.queue, t.function, t.upstream, t.tenant
)
SELECT task_id
FROM gone

-- name: runs
-- The tasks, of those just cancelled, whose final state enqueues a task, with their last run.
-- 1 ids: array of uuid
SELECT t.id, a.run
FROM /*schema*/task AS t
JOIN /*schema*/archive AS a ON a.task_id = t.id
WHERE t.id = ANY ($1::uuid[])
    AND t.on_final IS NOT NULL
