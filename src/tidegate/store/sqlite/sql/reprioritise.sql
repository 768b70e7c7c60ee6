-- reprioritise: give tasks that are not running another priority; their rank does not change.

-- name: ready
-- 1 task id, 2 priority
UPDATE ready
SET priority = ?2
WHERE task_id = ?1

-- name: waiting
-- 1 task id, 2 priority
UPDATE waiting
SET priority = ?2
WHERE task_id = ?1

-- name: task
-- 1 task id, 2 priority
UPDATE task
SET priority = ?2
WHERE id = ?1
