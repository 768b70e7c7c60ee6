-- get_statistics: counters of runs and tasks by period. The roll-up, what is not folded into it yet, and the starts of the
-- runs that have not ended.

-- name: counts
-- 1 first minute, 2 minute after the last, 3 minutes of a period, 4 queue or NULL, 5 function or NULL, 6 upstream or
-- NULL
SELECT
    minute - minute % $3::integer, queue, function, upstream, sum(enqueued), sum(started), sum(succeeded), sum(dead),
    sum(cancelled), sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens),
    sum(output_tokens)
FROM (
    SELECT
        minute, queue, function, upstream, enqueued, started, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, calls, input_tokens, output_tokens
    FROM /*schema*/rollup
    UNION ALL
    SELECT
        minute, queue, function, upstream, enqueued, 0, succeeded, dead, cancelled, retried, released, run_seconds,
        wait_seconds, coalesce(calls, 0), coalesce(input_tokens, 0), coalesce(output_tokens, 0)
    FROM /*schema*/tally
    UNION ALL
    SELECT
        started_minute, queue, function, upstream, 0, succeeded + dead + cancelled + retried + released, 0, 0, 0, 0, 0,
        0.0, 0.0, 0, 0, 0
    FROM /*schema*/tally
    WHERE started_minute IS NOT NULL
    UNION ALL
    SELECT
        floor(started_at / 60)::integer, queue, function, upstream, 0, 1, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0
    FROM /*schema*/running
) AS counted
WHERE minute >= $1::integer
    AND minute < $2::integer
    AND ($4::text IS NULL OR queue = $4)
    AND ($5::text IS NULL OR function = $5)
    AND ($6::text IS NULL OR upstream = $6)
GROUP BY minute - minute % $3::integer, queue, function, upstream
ORDER BY 1, 2, 3, 4

-- name: times
-- Numbers of runs by kind and bucket of duration. 1 to 6 as above
SELECT minute - minute % $3::integer, queue, function, upstream, kind, bucket, sum(runs)
FROM (
    SELECT minute, queue, function, upstream, kind, bucket, runs
    FROM /*schema*/rollup_time
    UNION ALL
    SELECT
        minute, queue, function, upstream, 'run', run_bucket, succeeded + dead + cancelled + retried + released
    FROM /*schema*/tally
    WHERE run_bucket IS NOT NULL
    UNION ALL
    SELECT
        minute, queue, function, upstream, 'wait', wait_bucket, succeeded + dead + cancelled + retried + released
    FROM /*schema*/tally
    WHERE wait_bucket IS NOT NULL
) AS counted
WHERE minute >= $1::integer
    AND minute < $2::integer
    AND ($4::text IS NULL OR queue = $4)
    AND ($5::text IS NULL OR function = $5)
    AND ($6::text IS NULL OR upstream = $6)
GROUP BY minute - minute % $3::integer, queue, function, upstream, kind, bucket

-- name: tenants
-- Counters of tenants over the whole time, those with the most tasks first.
-- 1 first minute, the first of an hour, 2 minute after the last, 3 tenant or NULL, 4 how many at most
SELECT
    tenant, sum(enqueued), sum(started), sum(succeeded), sum(dead), sum(cancelled), sum(retried), sum(released),
    sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens)
FROM (
    SELECT
        minute, tenant, enqueued, started, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds,
        calls, input_tokens, output_tokens
    FROM /*schema*/rollup_tenant
    UNION ALL
    SELECT
        minute, tenant, enqueued, 0, succeeded, dead, cancelled, retried, released, run_seconds, wait_seconds,
        coalesce(calls, 0), coalesce(input_tokens, 0), coalesce(output_tokens, 0)
    FROM /*schema*/tally
    WHERE tenant <> ''
    UNION ALL
    SELECT
        started_minute, tenant, 0, succeeded + dead + cancelled + retried + released, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0
    FROM /*schema*/tally
    WHERE tenant <> ''
        AND started_minute IS NOT NULL
    UNION ALL
    SELECT
        floor(started_at / 60)::integer, tenant, 0, 1, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0
    FROM /*schema*/running
    WHERE tenant <> ''
) AS counted
WHERE minute >= $1::integer
    AND minute < $2::integer
    AND ($3::text IS NULL OR tenant = $3)
GROUP BY tenant
ORDER BY sum(enqueued) + sum(started) DESC, tenant
LIMIT $4
