-- undo_enqueue: take back what an enqueue stored, with its keys. Tests use it to follow a transaction of another
-- database. The statements that delete the rest are generated from the registry of tables.

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
