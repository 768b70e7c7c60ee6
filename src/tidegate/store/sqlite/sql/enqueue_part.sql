-- enqueue_part: store parts of a large enqueue, invisible until the commit. These tasks have their rows in `task`
-- and `payload` already, and a row in `enqueue_batch_task` instead of a state.

-- name: enqueue_batch
-- 1 batch id, 2 now
INSERT INTO enqueue_batch (id, created_at)
VALUES (?, ?)
ON CONFLICT (id) DO NOTHING

-- name: state
-- 1 batch id
SELECT committed_at, refused_key, refused_for
FROM enqueue_batch
WHERE id = ?1

-- name: last_position
-- 1 batch id
SELECT coalesce(max(position), 0)
FROM enqueue_batch_task
WHERE batch_id = ?1

-- name: enqueue_batch_task
-- 1 batch id, 2 position, 3 task id, 4 due moment or NULL for ready at the commit, 5 fingerprint or NULL if
-- the task wants no name, 6 seconds its key is kept, 7 seconds its unique name is kept or NULL for until
-- the final state
INSERT INTO enqueue_batch_task (batch_id, position, task_id, due_at, fingerprint, key_seconds, unique_seconds)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: adopt
-- Move tasks of an uncommitted batch to another one: a client resends the same tasks in another batch.
-- 1 batch id, 2 task id, 3 position
UPDATE enqueue_batch_task
SET
    batch_id = ?1,
    position = ?3
WHERE task_id = ?2
    AND batch_id <> ?1
    AND batch_id IN (SELECT id FROM enqueue_batch WHERE committed_at IS NULL AND refused_for IS NULL)
