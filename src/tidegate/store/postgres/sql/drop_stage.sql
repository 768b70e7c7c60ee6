-- drop_stage: forget a stage and its tasks.

-- name: part
-- Delete some of a stage's tasks. A task that lost its name is gone already.
-- 1 stage id, 2 how many at most
WITH part AS (
    DELETE FROM /*schema*/staged
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM /*schema*/staged WHERE stage_id = $1 LIMIT $2))
    RETURNING task_id
),
dropped AS (
    DELETE FROM /*schema*/payload
    WHERE task_id = ANY(ARRAY(SELECT task_id FROM part))
),
gone AS (
    DELETE FROM /*schema*/task
    WHERE id = ANY(ARRAY(SELECT task_id FROM part))
)
SELECT count(*)
FROM part

-- name: forget_stage
-- 1 stage id
DELETE FROM /*schema*/stage
WHERE id = $1
