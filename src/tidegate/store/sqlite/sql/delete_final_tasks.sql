-- delete_final_tasks: find the tasks that may still be deleted. The statements that delete these tasks are generated
-- from the registry of tables.

-- name: archive
-- 1 ids: carray of 16-byte ids, 2 moment until which they became final
SELECT task_id
FROM archive
WHERE task_id IN (SELECT value FROM carray(?1))
    AND finished_at <= ?2

-- name: dead
-- 1 ids: carray of 16-byte ids, 2 moment until which they died
SELECT task_id
FROM dead
WHERE task_id IN (SELECT value FROM carray(?1))
    AND failed_at <= ?2
