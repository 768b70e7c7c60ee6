-- drop_batch: forget a batch and its tasks.

-- name: part
-- Delete some of a batch's tasks. A task that lost its name is gone already.
-- 1 enqueue_batch id, 2 how many at most
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
-- 1 enqueue_batch id
DELETE FROM /*schema*/enqueue_batch
WHERE id = $1
