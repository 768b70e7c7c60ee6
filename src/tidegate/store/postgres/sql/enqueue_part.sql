-- enqueue_part: store parts of a large enqueue, invisible until the commit. These tasks have their rows in `task`
-- and `payload` already, and a row in `enqueue_batch_task` instead of a state.

-- name: enqueue_batch
-- 1 batch id, 2 now
INSERT INTO /*schema*/enqueue_batch (id, created_at)
VALUES ($1, $2)
ON CONFLICT (id) DO NOTHING

-- name: state
-- Locks the batch, so that one transaction at a time fills, commits or drops it.
-- 1 batch id
SELECT committed_at, refused_key, refused_for::text
FROM /*schema*/enqueue_batch
WHERE id = $1
FOR UPDATE

-- name: last_position
-- 1 batch id
SELECT coalesce(max(position), 0)
FROM /*schema*/enqueue_batch_task
WHERE batch_id = $1

-- name: stored
-- Those of these ids that are stored already.
-- 1 ids: array of uuid
SELECT id
FROM /*schema*/task
WHERE id = ANY($1::uuid[])

-- name: adopt
-- Move tasks of an uncommitted batch to another one: a client resends the same tasks in another batch.
-- 1 batch id, 2 task ids: array of uuid, 3 their positions
UPDATE /*schema*/enqueue_batch_task AS s
SET
    batch_id = $1,
    position = given.position
FROM unnest($2::uuid[], $3::integer[]) AS given (id, position)
WHERE s.task_id = given.id
    AND s.batch_id <> $1
    AND s.batch_id IN (
        SELECT c.id FROM /*schema*/enqueue_batch AS c WHERE c.committed_at IS NULL AND c.refused_for IS NULL
    )
