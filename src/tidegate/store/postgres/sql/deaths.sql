-- deaths: count tasks when they die, by reason and fingerprint, and read the counts. Rows of a period are replaced by
-- their sums later, so each read adds rows up.

-- name: add
-- Each parameter is an array.
-- 1 minutes, 2 queues, 3 functions, 4 upstreams, 5 reasons, 6 fingerprints, 7 deaths, 8 now, 9 ids of tasks
INSERT INTO /*schema*/death (
    minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id
)
SELECT minute, queue, function, upstream, reason, fingerprint, deaths, now, now, example_id
FROM unnest(
    $1::integer[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::double precision[],
    $9::uuid[]
) AS given (minute, queue, function, upstream, reason, fingerprint, deaths, now, example_id)

-- name: describe
-- Each parameter is an array, in the order of the fingerprints.
-- 1 fingerprints, 2 error classes, 3 shapes of the messages, 4 frames
INSERT INTO /*schema*/failure_group (fingerprint, error_class, shape, frame)
SELECT fingerprint, error_class, shape, frame
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS given (fingerprint, error_class, shape, frame)
ON CONFLICT DO NOTHING

-- name: count
-- By period, queue, function and reason. A row that sums an hour or a day is included if any part of it is in the range.
-- 1 first minute, 2 minute after the last, 3 minutes of a period, 4 queue or NULL, 5 function or NULL, 6 reason or
-- NULL
SELECT minute - minute % $3::integer AS period, queue, function, reason, sum(deaths)::bigint
FROM /*schema*/death
WHERE span IN (0, 1, 60, 1440)
    AND minute > $1::integer - 1440
    AND minute + greatest(span, 1) > $1
    AND minute < $2::integer
    AND ($4::text IS NULL OR queue = $4)
    AND ($5::text IS NULL OR function = $5)
    AND ($6::text IS NULL OR reason = $6)
GROUP BY period, queue, function, reason
ORDER BY period, queue, function, reason

-- name: groups
-- By fingerprint, the most deaths first.
-- 1 first minute, 2 minute after the last, 3 queue or NULL, 4 function or NULL, 5 reason or NULL, 6 how many at most
SELECT
    d.fingerprint, g.error_class, g.shape, g.frame, d.deaths, d.first_at, d.last_at, d.functions, d.queues, d.reasons,
    d.example_id
FROM (
    SELECT
        fingerprint, sum(deaths)::bigint AS deaths, min(first_at) AS first_at, max(last_at) AS last_at,
        json_agg(DISTINCT function)::text AS functions, json_agg(DISTINCT queue)::text AS queues,
        json_agg(DISTINCT reason)::text AS reasons,
        (array_agg(example_id ORDER BY last_at DESC, example_id DESC))[1] AS example_id
    FROM /*schema*/death
    WHERE span IN (0, 1, 60, 1440)
        AND minute > $1::integer - 1440
        AND minute + greatest(span, 1) > $1
        AND minute < $2::integer
        AND ($3::text IS NULL OR queue = $3)
        AND ($4::text IS NULL OR function = $4)
        AND ($5::text IS NULL OR reason = $5)
    GROUP BY fingerprint
    ORDER BY deaths DESC, fingerprint
    LIMIT $6
) AS d
LEFT JOIN /*schema*/failure_group AS g ON g.fingerprint = d.fingerprint
ORDER BY d.deaths DESC, d.fingerprint

-- name: compact
-- Replace rows by the sums of their periods; return how many rows were replaced. Two processes replace different rows
-- at the same time; then a period has several sums.
-- 1 span of the rows, 2 minutes of a period, which become the span, 3 minute before which they may be summed,
-- 4 how many rows at most
WITH few AS MATERIALIZED (
    SELECT ctid AS row_location
    FROM /*schema*/death
    WHERE span = $1
        AND minute < $3
    ORDER BY minute
    LIMIT $4
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM /*schema*/death
    WHERE ctid = ANY (ARRAY (SELECT row_location FROM few))
    RETURNING minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id
),
summed AS (
    INSERT INTO /*schema*/death (
        span, minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id
    )
    SELECT
        $2::integer, minute - minute % $2::integer, queue, function, upstream, reason, fingerprint, sum(deaths), min(first_at),
        max(last_at), (array_agg(example_id ORDER BY last_at DESC, example_id DESC))[1]
    FROM gone
    GROUP BY minute - minute % $2::integer, queue, function, upstream, reason, fingerprint
)
SELECT count(*)
FROM gone

-- name: old
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM /*schema*/death
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/death
    WHERE span IN (0, 1, 60, 1440)
        AND minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: unused_groups
DELETE FROM /*schema*/failure_group AS g
WHERE NOT EXISTS (SELECT 1 FROM /*schema*/death AS d WHERE d.fingerprint = g.fingerprint)
