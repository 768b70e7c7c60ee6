-- cancel: end tasks that are not running, and ask running ones to stop.
-- moves: scheduled -> cancelled, held -> cancelled, suspended -> cancelled, ready -> cancelled, retrying -> cancelled

-- name: ask
-- 1 task id, 2 now, 3 whether by force
UPDATE running
SET
    cancel_requested_at = coalesce(cancel_requested_at, ?2),
    cancel_forced = cancel_forced OR ?3
WHERE task_id = ?1

-- name: leave_ready
-- 1 task id
DELETE FROM ready
WHERE task_id = ?1
RETURNING run, ready_at

-- name: leave_waiting
-- 1 task id
DELETE FROM waiting
WHERE task_id = ?1
RETURNING run, due_at

-- name: leave_batch
-- 1 task id
DELETE FROM enqueue_batch_task
WHERE task_id = ?1
RETURNING 0, due_at

-- name: archive
-- 1 task id, 2 run, 3 moment it was or would have been ready, or NULL, 4 now
INSERT INTO archive (task_id, state, run, ready_at, finished_at)
VALUES (?, 'cancelled', ?, ?, ?)

-- name: names
-- 1 task id
SELECT
    queue, function, upstream, tenant, CASE WHEN unique_until_final THEN unique_name END, on_final IS NOT NULL
FROM task
WHERE id = ?1
