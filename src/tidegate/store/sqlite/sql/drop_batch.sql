-- drop_batch: delete a batch. The statements that delete its tasks are generated from the registry of tables.

-- name: part
-- Some of a batch's tasks.
-- 1 batch id, 2 how many at most
SELECT task_id
FROM enqueue_batch_task
WHERE batch_id = ?1
LIMIT ?2

-- name: forget_part
-- 1 ids: carray of 16-byte ids
DELETE FROM enqueue_batch_task
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: forget_batch
-- 1 batch id
DELETE FROM enqueue_batch
WHERE id = ?1
