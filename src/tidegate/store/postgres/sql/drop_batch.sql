-- drop_batch: delete a batch and its tasks.

-- name: part
-- Delete some of a batch's tasks. A task whose name another task has was deleted at the commit.
-- 1 batch id, 2 how many at most
WITH part AS (
    DELETE FROM /*schema*/enqueue_batch_task
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM /*schema*/enqueue_batch_task WHERE batch_id = $1 LIMIT $2))
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

-- name: forget_batch
-- 1 batch id
DELETE FROM /*schema*/enqueue_batch
WHERE id = $1
