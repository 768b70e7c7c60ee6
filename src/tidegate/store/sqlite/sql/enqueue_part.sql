-- enqueue_part: keep the parts of a large enqueue where nothing can see them yet. Staged tasks have
-- their rows in `task` and `payload` already; only the `enqueue_batch_task` row says where they are.

-- name: enqueue_batch
-- 1 enqueue_batch id, 2 now
INSERT INTO enqueue_batch (id, created_at)
VALUES (?, ?)
ON CONFLICT (id) DO NOTHING

-- name: state
-- 1 enqueue_batch id
SELECT committed_at, refused_key, refused_for
FROM enqueue_batch
WHERE id = ?1

-- name: last_position
-- 1 enqueue_batch id
SELECT coalesce(max(position), 0)
FROM enqueue_batch_task
WHERE batch_id = ?1

-- name: enqueue_batch_task
-- 1 enqueue_batch id, 2 position, 3 task id, 4 due moment or NULL for ready at the commit, 5 fingerprint or NULL if
-- the task wants no name, 6 seconds its key is kept, 7 seconds its unique name is kept or NULL for until
-- the final state
INSERT INTO enqueue_batch_task (batch_id, position, task_id, due_at, fingerprint, key_seconds, unique_seconds)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: adopt
-- Take over tasks that an uncommitted enqueue_batch holds: the same tasks enqueue_batch_task again under another name.
-- 1 enqueue_batch id, 2 task id, 3 position
UPDATE enqueue_batch_task
SET
    batch_id = ?1,
    position = ?3
WHERE task_id = ?2
    AND batch_id <> ?1
    AND batch_id IN (SELECT id FROM enqueue_batch WHERE committed_at IS NULL AND refused_for IS NULL)
