-- release_batches: move tasks of committed batches to their state tables. The state of these tasks does not change:
-- they have had it since the commit.

-- name: any
SELECT 1
FROM enqueue_batch AS c
WHERE c.committed_at IS NOT NULL
    AND EXISTS (SELECT 1 FROM enqueue_batch_task AS s WHERE s.batch_id = c.id AND s.holder IS NULL)
LIMIT 1

-- name: next
-- 1 how many at most
SELECT s.task_id
FROM enqueue_batch AS c
CROSS JOIN enqueue_batch_task AS s ON s.batch_id = c.id
WHERE c.committed_at IS NOT NULL
    AND s.holder IS NULL
ORDER BY c.id, s.position
LIMIT ?1

-- name: count
-- 1 ids: carray of 16-byte ids
SELECT t.queue, t.function, t.upstream, t.tenant, count(*)
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value
GROUP BY t.queue, t.function, t.upstream, t.tenant

-- name: ready
-- 1 ids: carray of 16-byte ids
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT
    t.id, t.queue, t.priority, t.upstream, t.function, t.tenant, c.committed_at, c.committed_at, 0
FROM carray(?1) AS given
CROSS JOIN enqueue_batch_task AS s ON s.task_id = given.value
CROSS JOIN enqueue_batch AS c ON c.id = s.batch_id
CROSS JOIN task AS t ON t.id = s.task_id
WHERE s.due_at IS NULL

-- name: scheduled
-- 1 ids: carray of 16-byte ids
INSERT INTO waiting (task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run)
SELECT
    t.id, 'scheduled', s.due_at, t.queue, t.priority, t.upstream, t.function, t.tenant, s.due_at, 0
FROM carray(?1) AS given
CROSS JOIN enqueue_batch_task AS s ON s.task_id = given.value
CROSS JOIN task AS t ON t.id = s.task_id
WHERE s.due_at IS NOT NULL

-- name: remove
-- 1 ids: carray of 16-byte ids
DELETE FROM enqueue_batch_task
WHERE task_id IN (SELECT value FROM carray(?1))
