-- purge: delete tasks with everything that belongs to them. delete_expired and drop_batch use it too. Keys stay
-- until they expire.

-- name: delete_task
-- 1 ids: carray of 16-byte ids
DELETE FROM task
WHERE id IN (SELECT value FROM carray(?1))

-- name: delete_payload
-- 1 ids
DELETE FROM payload
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_archive
-- 1 ids
DELETE FROM archive
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_result
-- 1 ids
DELETE FROM result
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_dead
-- 1 ids
DELETE FROM dead
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_progress
-- 1 ids
DELETE FROM progress
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_usage
-- 1 ids
DELETE FROM usage
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_attempts
-- 1 ids
DELETE FROM attempt
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_actions
-- 1 ids
DELETE FROM action
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_stream
-- 1 ids
DELETE FROM stream
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: delete_chunks
-- 1 ids
DELETE FROM chunk
WHERE task_id IN (SELECT value FROM carray(?1))
