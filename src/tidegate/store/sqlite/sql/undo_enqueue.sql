-- undo_enqueue: take back what an enqueue stored, with its keys. Tests follow a transaction of another database with
-- it. The statements of purge delete the rest.

-- name: forget_ready
-- 1 ids: carray of 16-byte ids
DELETE FROM ready
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: forget_waiting
-- 1 ids: carray of 16-byte ids
DELETE FROM waiting
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: forget_keys
-- 1 ids: carray of 16-byte ids
DELETE FROM key
WHERE task_id IN (SELECT value FROM carray(?1))
