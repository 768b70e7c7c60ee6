-- run_now: make tasks that wait for a moment ready now.
-- moves: scheduled -> ready, retrying -> ready

-- name: ready
-- 1 task id, 2 now. The rank becomes the current time, unless the old rank was better.
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT task_id, queue, priority, upstream, function, tenant, min(rank, ?2), ?2, run
FROM waiting
WHERE task_id = ?1
    AND state IN ('scheduled', 'retrying')

-- name: leave
-- 1 task id
DELETE FROM waiting
WHERE task_id = ?1

-- name: enqueue_batch_task
-- Returns a row unless the task is ready already.
-- 1 task id
UPDATE enqueue_batch_task
SET due_at = NULL
WHERE task_id = ?1
    AND due_at IS NOT NULL
RETURNING 1
