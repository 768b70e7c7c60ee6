-- run_now: make tasks that wait for a moment ready now. The statement is repeated until each task was found, as in
-- `cancel`.
-- moves: scheduled -> ready, retrying -> ready

-- name: now
-- Returns the tasks found, and whether each was changed. The rank becomes the current time, unless the old rank was
-- better.
-- 1 ids: array of uuid, 2 at
WITH left_waiting AS (
    DELETE FROM /*schema*/waiting
    WHERE task_id = ANY(ARRAY(
        SELECT task_id
        FROM /*schema*/waiting
        WHERE task_id = ANY($1::uuid[])
            AND state IN ('scheduled', 'retrying')
        ORDER BY task_id
        FOR UPDATE
    ))
    RETURNING task_id, queue, priority, upstream, function, tenant, rank, run
),
at_once AS (
    INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
    SELECT w.task_id, w.queue, w.priority, w.upstream, w.function, w.tenant, least(w.rank, m.now), m.now, w.run
    FROM (SELECT /*schema*/moment($2) AS now) AS m
    CROSS JOIN left_waiting AS w
),
in_batch AS (
    SELECT s.task_id, s.due_at IS NOT NULL AS waits
    FROM /*schema*/enqueue_batch_task AS s
    JOIN /*schema*/enqueue_batch AS c ON c.id = s.batch_id
    WHERE s.task_id = ANY($1::uuid[])
        AND c.committed_at IS NOT NULL
    ORDER BY s.task_id
    FOR UPDATE OF s
),
due_now AS (
    UPDATE /*schema*/enqueue_batch_task AS s
    SET due_at = NULL
    FROM in_batch AS i
    WHERE s.task_id = i.task_id
)
SELECT task_id, true FROM left_waiting
UNION ALL
SELECT task_id, waits FROM in_batch
