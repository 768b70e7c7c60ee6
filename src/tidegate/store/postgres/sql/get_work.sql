-- get_work: the tasks by queue, upstream and function that workers run or could run, for autoscaling.

-- name: running
SELECT queue, upstream, function, count(*)
FROM /*schema*/running
GROUP BY queue, upstream, function

-- name: due
-- Tasks that are due but not yet ready: without a live worker, no process makes them ready.
-- 1 now
SELECT queue, upstream, function, count(*)
FROM /*schema*/waiting
WHERE coalesce(held_until_at, due_at) <= $1
    AND due_at IS NOT NULL
GROUP BY queue, upstream, function

-- name: run_seconds
-- The run time and number of the runs that ended lately.
-- 1 first minute
SELECT queue, upstream, function, sum(run_seconds), sum(runs)
FROM (
    SELECT queue, upstream, function, run_seconds, succeeded + dead + retried + released AS runs
    FROM /*schema*/rollup
    WHERE minute >= $1
    UNION ALL
    SELECT queue, upstream, function, run_seconds, succeeded + dead + retried + released
    FROM /*schema*/tally
    WHERE minute >= $1
) AS counted
GROUP BY queue, upstream, function
HAVING sum(runs) > 0

-- name: lately
-- Enqueued tasks by minute.
-- 1 first minute
SELECT queue, upstream, function, minute, sum(enqueued)::bigint
FROM (
    SELECT queue, upstream, function, minute, enqueued
    FROM /*schema*/rollup
    WHERE minute >= $1
    UNION ALL
    SELECT queue, upstream, function, minute, enqueued
    FROM /*schema*/tally
    WHERE minute >= $1
) AS counted
WHERE enqueued > 0
GROUP BY queue, upstream, function, minute

-- name: run_times
-- The run time and number of the runs that ended lately, and the number of tasks that became final.
-- 1 first minute
SELECT queue, upstream, function, sum(run_seconds), sum(runs)::bigint, sum(ends)::bigint
FROM (
    SELECT
        queue, upstream, function, run_seconds, succeeded + dead + cancelled + retried + released AS runs,
        succeeded + dead + cancelled AS ends
    FROM /*schema*/rollup
    WHERE minute >= $1
    UNION ALL
    SELECT
        queue, upstream, function, run_seconds, succeeded + dead + cancelled + retried + released,
        succeeded + dead + cancelled
    FROM /*schema*/tally
    WHERE minute >= $1
) AS counted
GROUP BY queue, upstream, function
HAVING sum(runs) > 0

-- name: running_by_priority
SELECT queue, upstream, function, priority, count(*)
FROM /*schema*/running
GROUP BY queue, upstream, function, priority
