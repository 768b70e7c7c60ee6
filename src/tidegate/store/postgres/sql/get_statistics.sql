-- get_statistics: counters of runs and tasks by period. Each part of the time is read from the rows with the longest span
-- that fit: days, hours, minutes. Counters that are not folded yet are read from the table to which they were appended.
-- The starts of runs that have not ended are read from `running`.

-- name: sums
-- Counters by the hour and the day.
-- Arrays: 1 spans, 2 first minutes, 3 minutes after the last; then 4 minutes of a period, 5 queue or NULL, 6 function or NULL,
-- 7 upstream or NULL, whether to keep apart: 8 queues, 9 functions, 10 upstreams
SELECT
    c.minute - c.minute % $4::integer AS period, CASE WHEN $8::boolean THEN c.queue ELSE '' END AS of_queue,
    CASE WHEN $9::boolean THEN c.function ELSE '' END AS of_function,
    CASE WHEN $10::boolean THEN c.upstream ELSE '' END AS of_upstream, sum(c.enqueued), sum(c.started), sum(c.succeeded),
    sum(c.dead), sum(c.cancelled), sum(c.retried), sum(c.released), sum(c.run_seconds), sum(c.wait_seconds), sum(c.calls),
    sum(c.input_tokens), sum(c.output_tokens)
FROM unnest($1::integer[], $2::integer[], $3::integer[]) AS given (span, first, after)
CROSS JOIN LATERAL (
    SELECT
        s.minute, s.queue, s.function, s.upstream, s.enqueued, s.started, s.succeeded, s.dead, s.cancelled, s.retried,
        s.released, s.run_seconds, s.wait_seconds, s.calls, s.input_tokens, s.output_tokens
    FROM /*schema*/rollup_sum AS s
    WHERE s.span = given.span
        AND s.minute >= given.first
        AND s.minute < given.after
    OFFSET 0
) AS c
WHERE ($5::text IS NULL OR c.queue = $5)
    AND ($6::text IS NULL OR c.function = $6)
    AND ($7::text IS NULL OR c.upstream = $7)
GROUP BY period, of_queue, of_function, of_upstream

-- name: minutes
-- Counters by the minute. 1 to 10 as above
SELECT
    c.minute - c.minute % $4::integer AS period, CASE WHEN $8::boolean THEN c.queue ELSE '' END AS of_queue,
    CASE WHEN $9::boolean THEN c.function ELSE '' END AS of_function,
    CASE WHEN $10::boolean THEN c.upstream ELSE '' END AS of_upstream, sum(c.enqueued), sum(c.started), sum(c.succeeded),
    sum(c.dead), sum(c.cancelled), sum(c.retried), sum(c.released), sum(c.run_seconds), sum(c.wait_seconds), sum(c.calls),
    sum(c.input_tokens), sum(c.output_tokens)
FROM unnest($1::integer[], $2::integer[], $3::integer[]) AS given (span, first, after)
CROSS JOIN LATERAL (
    SELECT
        s.minute, s.queue, s.function, s.upstream, s.enqueued, s.started, s.succeeded, s.dead, s.cancelled, s.retried,
        s.released, s.run_seconds, s.wait_seconds, s.calls, s.input_tokens, s.output_tokens
    FROM /*schema*/rollup AS s
    WHERE s.minute >= given.first
        AND s.minute < given.after
    OFFSET 0
) AS c
WHERE ($5::text IS NULL OR c.queue = $5)
    AND ($6::text IS NULL OR c.function = $6)
    AND ($7::text IS NULL OR c.upstream = $7)
GROUP BY period, of_queue, of_function, of_upstream

-- name: recent
-- Counters that are not folded yet. 1 to 10 as above
SELECT
    c.minute - c.minute % $4::integer AS period, CASE WHEN $8::boolean THEN c.queue ELSE '' END AS of_queue,
    CASE WHEN $9::boolean THEN c.function ELSE '' END AS of_function,
    CASE WHEN $10::boolean THEN c.upstream ELSE '' END AS of_upstream, sum(c.enqueued), sum(c.started), sum(c.succeeded),
    sum(c.dead), sum(c.cancelled), sum(c.retried), sum(c.released), sum(c.run_seconds), sum(c.wait_seconds), sum(c.calls),
    sum(c.input_tokens), sum(c.output_tokens)
FROM unnest($1::integer[], $2::integer[], $3::integer[]) AS given (span, first, after)
CROSS JOIN (
    SELECT
        minute, queue, function, upstream, enqueued, 0 AS started, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, coalesce(calls, 0) AS calls, coalesce(input_tokens, 0) AS input_tokens,
        coalesce(output_tokens, 0) AS output_tokens
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
) AS c
WHERE c.minute >= given.first
    AND c.minute < given.after
    AND ($5::text IS NULL OR c.queue = $5)
    AND ($6::text IS NULL OR c.function = $6)
    AND ($7::text IS NULL OR c.upstream = $7)
GROUP BY period, of_queue, of_function, of_upstream

-- name: time_sums
-- Numbers of runs by kind and bucket of duration. 1 to 10 as above
SELECT
    c.minute - c.minute % $4::integer AS period, CASE WHEN $8::boolean THEN c.queue ELSE '' END AS of_queue,
    CASE WHEN $9::boolean THEN c.function ELSE '' END AS of_function,
    CASE WHEN $10::boolean THEN c.upstream ELSE '' END AS of_upstream, c.kind, c.bucket, sum(c.runs)
FROM unnest($1::integer[], $2::integer[], $3::integer[]) AS given (span, first, after)
CROSS JOIN LATERAL (
    SELECT s.minute, s.queue, s.function, s.upstream, s.kind, s.bucket, s.runs
    FROM /*schema*/rollup_time_sum AS s
    WHERE s.span = given.span
        AND s.minute >= given.first
        AND s.minute < given.after
    OFFSET 0
) AS c
WHERE ($5::text IS NULL OR c.queue = $5)
    AND ($6::text IS NULL OR c.function = $6)
    AND ($7::text IS NULL OR c.upstream = $7)
GROUP BY period, of_queue, of_function, of_upstream, c.kind, c.bucket

-- name: time_minutes
-- 1 to 10 as above
SELECT
    c.minute - c.minute % $4::integer AS period, CASE WHEN $8::boolean THEN c.queue ELSE '' END AS of_queue,
    CASE WHEN $9::boolean THEN c.function ELSE '' END AS of_function,
    CASE WHEN $10::boolean THEN c.upstream ELSE '' END AS of_upstream, c.kind, c.bucket, sum(c.runs)
FROM unnest($1::integer[], $2::integer[], $3::integer[]) AS given (span, first, after)
CROSS JOIN LATERAL (
    SELECT s.minute, s.queue, s.function, s.upstream, s.kind, s.bucket, s.runs
    FROM /*schema*/rollup_time AS s
    WHERE s.minute >= given.first
        AND s.minute < given.after
    OFFSET 0
) AS c
WHERE ($5::text IS NULL OR c.queue = $5)
    AND ($6::text IS NULL OR c.function = $6)
    AND ($7::text IS NULL OR c.upstream = $7)
GROUP BY period, of_queue, of_function, of_upstream, c.kind, c.bucket

-- name: recent_times
-- 1 to 10 as above
SELECT
    c.minute - c.minute % $4::integer AS period, CASE WHEN $8::boolean THEN c.queue ELSE '' END AS of_queue,
    CASE WHEN $9::boolean THEN c.function ELSE '' END AS of_function,
    CASE WHEN $10::boolean THEN c.upstream ELSE '' END AS of_upstream, c.kind, c.bucket, sum(c.runs)
FROM unnest($1::integer[], $2::integer[], $3::integer[]) AS given (span, first, after)
CROSS JOIN (
    SELECT
        minute, queue, function, upstream, 'run' AS kind, run_bucket AS bucket,
        succeeded + dead + cancelled + retried + released AS runs
    FROM /*schema*/tally
    WHERE run_bucket IS NOT NULL
    UNION ALL
    SELECT minute, queue, function, upstream, 'wait', wait_bucket, succeeded + dead + cancelled + retried + released
    FROM /*schema*/tally
    WHERE wait_bucket IS NOT NULL
) AS c
WHERE c.minute >= given.first
    AND c.minute < given.after
    AND ($5::text IS NULL OR c.queue = $5)
    AND ($6::text IS NULL OR c.function = $6)
    AND ($7::text IS NULL OR c.upstream = $7)
GROUP BY period, of_queue, of_function, of_upstream, c.kind, c.bucket

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
