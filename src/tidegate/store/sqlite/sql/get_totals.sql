-- get_totals: counters since the store was made. They are the totals plus the counters that are not folded yet.

-- name: counts
SELECT
    queue, function, upstream, sum(enqueued), sum(succeeded), sum(dead), sum(cancelled), sum(retried), sum(released),
    sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens),
    sum(total_seconds)
FROM (
    SELECT
        queue, function, upstream, enqueued, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds,
        calls, input_tokens, output_tokens, total_seconds
    FROM total
    UNION ALL
    SELECT
        queue, function, upstream, enqueued, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds,
        coalesce(calls, 0), coalesce(input_tokens, 0), coalesce(output_tokens, 0),
        coalesce(total_seconds, 0)
    FROM tally
)
GROUP BY queue, function, upstream
ORDER BY queue, function, upstream

-- name: times
-- Numbers of runs by kind and bucket of duration.
SELECT queue, function, kind, bucket, sum(runs)
FROM (
    SELECT queue, function, kind, bucket, runs
    FROM total_time
    UNION ALL
    SELECT queue, function, 'run', run_bucket, succeeded + dead + cancelled + retried + released
    FROM tally
    WHERE run_bucket IS NOT NULL
    UNION ALL
    SELECT queue, function, 'wait', wait_bucket, succeeded + dead + cancelled + retried + released
    FROM tally
    WHERE wait_bucket IS NOT NULL
    UNION ALL
    SELECT queue, function, 'total', total_bucket, succeeded + dead + cancelled
    FROM tally
    WHERE total_bucket IS NOT NULL
)
GROUP BY queue, function, kind, bucket
ORDER BY queue, function, kind, bucket

-- name: events
SELECT kind, name, function, reason, sum(events)
FROM (
    SELECT kind, name, function, reason, events
    FROM total_event
    UNION ALL
    SELECT 'retried', queue, function, coalesce(reason, ''), retried
    FROM tally
    WHERE retried > 0
    UNION ALL
    SELECT 'dead', queue, function, coalesce(reason, ''), dead
    FROM tally
    WHERE dead > 0
    UNION ALL
    SELECT 'call', upstream, '', reason, ended_calls
    FROM tally
    WHERE ended_calls IS NOT NULL
    UNION ALL
    SELECT 'cache', queue, function, reason, cached
    FROM tally
    WHERE cached IS NOT NULL
) AS counted
GROUP BY kind, name, function, reason
ORDER BY kind, name, function, reason
