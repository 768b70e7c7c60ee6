-- get_queue_stats: count by queue from the state tables and the roll-up. Finished tasks are never scanned.

-- name: ready
-- By channel. The priority is only in GROUP BY, because the index is in its order.
SELECT queue, upstream, function, count(*), min(ready_at)
FROM ready
GROUP BY queue, priority, upstream, function

-- name: running
SELECT queue, count(*)
FROM running
GROUP BY queue

-- name: waiting
SELECT queue, state, count(*)
FROM waiting
GROUP BY queue, state

-- name: dead
SELECT queue, count(*)
FROM dead
GROUP BY queue

-- name: enqueue_batch_task
-- Tasks of committed batches that were not moved yet.
SELECT t.queue, s.due_at IS NULL, count(*), min(c.committed_at)
FROM enqueue_batch AS c
CROSS JOIN enqueue_batch_task AS s ON s.batch_id = c.id
CROSS JOIN task AS t ON t.id = s.task_id
WHERE c.committed_at IS NOT NULL
    AND s.holder IS NULL
GROUP BY t.queue, s.due_at IS NULL

-- name: done
-- Grouped by `+queue`, so that no index matches: otherwise SQLite would scan all of `rollup_queue` instead of
-- reading the few minutes from the primary key.
-- 1 first minute of the window, 2 last full minute
SELECT
    queue, sum(succeeded + dead + cancelled),
    coalesce(sum(succeeded + dead + cancelled) FILTER (WHERE minute = ?2), 0),
    coalesce(sum(succeeded + dead + cancelled) FILTER (WHERE minute > ?2), 0), min(first_final_at)
FROM rollup
WHERE minute >= ?1
GROUP BY +queue

-- name: done_before
-- Returns the queue if it finished any task before the window.
-- 1 queue, 2 first minute of the window
SELECT ?1
WHERE EXISTS (
    SELECT 1
    FROM rollup
    WHERE queue = ?1
        AND minute < ?2
        AND first_final_at IS NOT NULL
)
