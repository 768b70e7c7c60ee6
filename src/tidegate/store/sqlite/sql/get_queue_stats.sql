-- get_queue_stats: count by queue from the state tables and the roll-up. Finished tasks are never scanned.

-- name: ready
-- Ready tasks by channel.
SELECT queue, upstream, function, count(*), min(ready_at), priority
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
-- 1 first minute of the window, 2 last full minute
SELECT
    queue, sum(ends), coalesce(sum(ends) FILTER (WHERE minute = ?2), 0),
    coalesce(sum(ends) FILTER (WHERE minute > ?2), 0), min(first_final_at),
    coalesce(sum(enqueued) FILTER (WHERE minute = ?2), 0),
    coalesce(sum(enqueued) FILTER (WHERE minute > ?2), 0)
FROM (
    SELECT minute, queue, succeeded + dead + cancelled AS ends, first_final_at, enqueued
    FROM rollup
    WHERE minute >= ?1
    UNION ALL
    SELECT minute, queue, succeeded + dead + cancelled, first_final_at, enqueued
    FROM tally
    WHERE minute >= ?1
)
GROUP BY queue

-- name: done_ever
SELECT queue, sum(ends)
FROM (
    SELECT queue, succeeded + dead + cancelled AS ends
    FROM total
    UNION ALL
    SELECT queue, succeeded + dead + cancelled
    FROM tally
) AS counted
GROUP BY queue
