-- commit_batch: take the names of a batch's tasks and make all its tasks visible at once. The cost depends only on
-- the number of tasks that want a name.
-- moves: new -> ready, new -> scheduled

-- name: keyed
-- A page of the tasks that want a name, in order.
-- 1 batch id, 2 position after which to continue, 3 how many at most
SELECT
    s.position, s.task_id, t.tenant, s.fingerprint, t.idempotency_key, s.key_seconds, t.unique_name, s.unique_seconds
FROM enqueue_batch_task AS s
CROSS JOIN task AS t ON t.id = s.task_id
WHERE s.batch_id = ?1
    AND s.fingerprint IS NOT NULL
    AND s.position > ?2
ORDER BY s.position
LIMIT ?3

-- name: lose
-- 1 task id, 2 the task that holds its name
UPDATE enqueue_batch_task
SET holder = ?2
WHERE task_id = ?1

-- name: drop_task
-- 1 task id
DELETE FROM task
WHERE id = ?1

-- name: drop_payload
-- 1 task id
DELETE FROM payload
WHERE task_id = ?1

-- name: commit
-- 1 batch id, 2 now
UPDATE enqueue_batch
SET committed_at = ?2
WHERE id = ?1

-- name: refuse
-- 1 batch id, 2 key, 3 the task that holds it
UPDATE enqueue_batch
SET
    refused_key = ?2,
    refused_for = ?3
WHERE id = ?1

-- name: losers
-- 1 batch id
SELECT task_id, holder
FROM enqueue_batch_task
WHERE batch_id = ?1
    AND holder IS NOT NULL
ORDER BY position
