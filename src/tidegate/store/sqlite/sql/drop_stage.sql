-- drop_stage: forget a stage; its tasks go by the statements of purge.

-- name: part
-- Some of a stage's tasks.
-- 1 stage id, 2 how many at most
SELECT task_id
FROM staged
WHERE stage_id = ?1
LIMIT ?2

-- name: forget_part
-- 1 ids: carray of 16-byte ids
DELETE FROM staged
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: forget_stage
-- 1 stage id
DELETE FROM stage
WHERE id = ?1
