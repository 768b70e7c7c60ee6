-- get_queue_stats: count by queue from the state tables and the roll-up. Finished tasks are never scanned.

-- name: ready
-- Ready tasks by channel.
SELECT queue, upstream, function, count(*), min(ready_at), priority
FROM /*schema*/ready
GROUP BY queue, priority, upstream, function

-- name: running
SELECT queue, count(*)
FROM /*schema*/running
GROUP BY queue

-- name: waiting
SELECT queue, state, count(*)
FROM /*schema*/waiting
GROUP BY queue, state

-- name: dead
-- Each queue is counted from the index. A GROUP BY would read the whole table: 40 ms instead of 17 for 200,000 rows.
WITH RECURSIVE queues AS (
    SELECT min(queue) AS queue
    FROM /*schema*/dead
    UNION ALL
    SELECT (SELECT min(d.queue) FROM /*schema*/dead AS d WHERE d.queue > q.queue)
    FROM queues AS q
    WHERE q.queue IS NOT NULL
)
SELECT queue, (SELECT count(*) FROM /*schema*/dead AS d WHERE d.queue = q.queue)
FROM queues AS q
WHERE queue IS NOT NULL

-- name: enqueue_batch_task
-- Tasks of committed batches that were not moved yet.
SELECT t.queue, s.due_at IS NULL, count(*), min(c.committed_at)
FROM /*schema*/enqueue_batch AS c
INNER JOIN /*schema*/enqueue_batch_task AS s ON s.batch_id = c.id
INNER JOIN /*schema*/task AS t ON t.id = s.task_id
WHERE c.committed_at IS NOT NULL
    AND s.holder IS NULL
GROUP BY t.queue, s.due_at IS NULL

-- name: done
-- 1 first minute of the window, 2 last full minute
SELECT
    queue, sum(ends)::bigint, coalesce(sum(ends) FILTER (WHERE minute = $2), 0)::bigint,
    coalesce(sum(ends) FILTER (WHERE minute > $2), 0)::bigint, min(first_final_at),
    coalesce(sum(enqueued) FILTER (WHERE minute = $2), 0)::bigint,
    coalesce(sum(enqueued) FILTER (WHERE minute > $2), 0)::bigint
FROM (
    SELECT minute, queue, succeeded + dead + cancelled AS ends, first_final_at, enqueued
    FROM /*schema*/rollup
    WHERE minute >= $1
    UNION ALL
    SELECT minute, queue, succeeded + dead + cancelled, first_final_at, enqueued
    FROM /*schema*/tally
    WHERE minute >= $1
) AS counted
GROUP BY queue

-- name: done_ever
SELECT queue, sum(ends)::bigint
FROM (
    SELECT queue, succeeded + dead + cancelled AS ends
    FROM /*schema*/total
    UNION ALL
    SELECT queue, succeeded + dead + cancelled
    FROM /*schema*/tally
) AS counted
GROUP BY queue
