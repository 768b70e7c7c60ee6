-- enqueue_part: keep the parts of a large enqueue where nothing can see them yet. Staged tasks have
-- their rows in `task` and `payload` already; only the `enqueue_batch_task` row says where they are.

-- name: enqueue_batch
-- 1 enqueue_batch id, 2 now
INSERT INTO /*schema*/enqueue_batch (id, created_at)
VALUES ($1, $2)
ON CONFLICT (id) DO NOTHING

-- name: state
-- Locks the batch: a batch is filled, committed or dropped by one at a time.
-- 1 enqueue_batch id
SELECT committed_at, refused_key, refused_for::text
FROM /*schema*/enqueue_batch
WHERE id = $1
FOR UPDATE

-- name: last_position
-- 1 enqueue_batch id
SELECT coalesce(max(position), 0)
FROM /*schema*/enqueue_batch_task
WHERE batch_id = $1

-- name: stored
-- Which of these ids are stored already.
-- 1 ids: array of uuid
SELECT id
FROM /*schema*/task
WHERE id = ANY($1::uuid[])

-- name: adopt
-- Take over tasks that an uncommitted enqueue_batch holds: the same tasks enqueue_batch_task again under another name.
-- 1 enqueue_batch id, 2 task ids: array of uuid, 3 their positions
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
