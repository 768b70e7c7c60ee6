-- delete_final_tasks: lock the tasks that may still be deleted, in the order of their ids, without waiting. The
-- statements that delete these tasks are generated from the registry of tables.

-- name: archive
-- 1 ids, 2 moment until which they became final
SELECT task_id
FROM /*schema*/archive
WHERE task_id = ANY ($1::uuid[])
    AND finished_at <= $2
ORDER BY task_id
FOR UPDATE SKIP LOCKED

-- name: dead
-- 1 ids, 2 moment until which they died
SELECT task_id
FROM /*schema*/dead
WHERE task_id = ANY ($1::uuid[])
    AND failed_at <= $2
ORDER BY task_id
FOR UPDATE SKIP LOCKED
