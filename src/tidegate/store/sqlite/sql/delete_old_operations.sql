-- delete_old_operations: delete operations that ended long ago, with their letters. Operations with letters that have
-- no outcome yet are kept.

-- name: old
-- 1 moment before which they ended
SELECT id
FROM operation
WHERE ended_at < ?1
    AND sent <= succeeded + died + cancelled + undone
ORDER BY ended_at
LIMIT 1

-- name: letters
-- 1 operation, 2 how many at most
DELETE FROM operation_task
WHERE operation_id = ?1
    AND task_id IN (SELECT task_id FROM operation_task WHERE operation_id = ?1 LIMIT ?2)

-- name: operation
-- 1 operation
DELETE FROM operation
WHERE id = ?1
