-- enqueue: store new tasks with their payloads, ready or scheduled, and count them.
-- All tasks of a call are stored, or none: the statements run in one savepoint of a write transaction.
-- moves: new -> ready, new -> scheduled, new -> held

-- name: stored
-- Those of these ids that are stored already.
-- 1 ids: carray of 16-byte ids
SELECT t.id
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value

-- name: unseen
-- Those of these ids that are only in an uncommitted batch.
-- 1 ids: carray of 16-byte ids
SELECT s.task_id
FROM carray(?1) AS given
CROSS JOIN enqueue_batch_task AS s ON s.task_id = given.value
CROSS JOIN enqueue_batch AS c ON c.id = s.batch_id
WHERE c.committed_at IS NULL

-- name: task
-- 1 id, 2 function, 3 queue, 4 priority, 5 upstream, 6 tenant, 7 idempotency key or NULL,
-- 8 unique name or NULL, 9 whether the final state frees it, 10 timeout seconds or NULL,
-- 11 total timeout seconds or NULL, 12 max attempts or NULL, 13 deadline seconds or NULL, 14 deadline moment or NULL,
-- 15 labels as JSON or NULL, 16 now, 17 final hook as JSON or NULL
INSERT INTO task (
    id, function, queue, priority, upstream, tenant, idempotency_key, unique_name, unique_until_final,
    timeout_seconds, total_timeout_seconds, max_attempts, deadline_seconds, deadline_at, labels, enqueued_at,
    on_final
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: item
-- 1 to 17 as `task`, 18 id of its map, 19 its position there
INSERT INTO task (
    id, function, queue, priority, upstream, tenant, idempotency_key, unique_name, unique_until_final,
    timeout_seconds, total_timeout_seconds, max_attempts, deadline_seconds, deadline_at, labels, enqueued_at,
    on_final, map_id, map_position
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: payload
-- 1 id, 2 codec tag, 3 arguments as bytes
INSERT INTO payload (task_id, codec_tag, args)
VALUES (?, ?, ?)

-- name: ready
-- 1 id, 2 queue, 3 priority, 4 upstream, 5 function, 6 tenant, 7 rank, 8 moment it became ready
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)

-- name: scheduled
-- 1 id, 2 due moment, 3 queue, 4 priority, 5 upstream, 6 function, 7 tenant, 8 rank
INSERT INTO waiting (task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run)
VALUES (?, 'scheduled', ?, ?, ?, ?, ?, ?, ?, 0)

-- name: count
-- 1 minute, 2 queue, 3 function, 4 upstream, 5 tenant, 6 tasks enqueued
INSERT INTO tally (minute, queue, function, upstream, tenant, enqueued)
VALUES (?, ?, ?, ?, ?, ?)

-- name: hold
-- Put new tasks that wait for other tasks among the held ones. They were ready in this transaction only.
-- 1 ids: carray of 16-byte ids
INSERT INTO waiting (
    task_id, state, queue, priority, upstream, function, tenant, rank, run, held_by
)
SELECT r.task_id, 'held', r.queue, r.priority, r.upstream, r.function, r.tenant, r.rank, r.run, 'after'
FROM ready AS r
WHERE r.task_id IN (SELECT value FROM carray(?1))
    AND r.run = 0

-- name: leave_ready
-- 1 ids: carray of 16-byte ids
DELETE FROM ready
WHERE task_id IN (SELECT value FROM carray(?1))
    AND run = 0
