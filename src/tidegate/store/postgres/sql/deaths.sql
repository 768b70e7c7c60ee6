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
-- By period, queue, function and reason. Days are read from `death_day`, which has all deaths except those just
-- appended. The rest of the time is read from `death`. A row that sums an hour is included if any part of it is in the
-- range.
-- 1 first minute, 2 minute after the last, 3 the first day to read, 4 the day after the last one, 5 minutes of a period,
-- 6 queue or NULL, 7 function or NULL, 8 reason or NULL, 9 fingerprints as a JSON array or NULL
SELECT minute - minute % $5::integer AS period, queue, function, reason, sum(deaths)::bigint
FROM (
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM /*schema*/death_day
    WHERE minute >= $3::integer
        AND minute < $4::integer
    UNION ALL
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM /*schema*/death
    WHERE span = 0
        AND minute >= $1::integer
        AND minute < $2::integer
    UNION ALL
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM /*schema*/death
    WHERE span IN (1, 60)
        AND minute > $1::integer - 60
        AND minute + span > $1::integer
        AND minute < $3::integer
    UNION ALL
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM /*schema*/death
    WHERE span IN (1, 60)
        AND minute >= $4::integer
        AND minute < $2::integer
) AS counted
WHERE ($6::text IS NULL OR queue = $6)
    AND ($7::text IS NULL OR function = $7)
    AND ($8::text IS NULL OR reason = $8)
    AND ($9::text IS NULL OR fingerprint = ANY (ARRAY(SELECT json_array_elements_text($9::json))))
GROUP BY period, queue, function, reason
ORDER BY period, queue, function, reason

-- name: groups
-- By fingerprint, queue, function and reason. 1 to 4 as above, 5 queue or NULL, 6 function or NULL, 7 reason or NULL
SELECT fingerprint, queue, function, reason, sum(deaths)::bigint, min(first_at), max(last_at)
FROM (
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM /*schema*/death_day
    WHERE minute >= $3::integer
        AND minute < $4::integer
    UNION ALL
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM /*schema*/death
    WHERE span = 0
        AND minute >= $1::integer
        AND minute < $2::integer
    UNION ALL
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM /*schema*/death
    WHERE span IN (1, 60)
        AND minute > $1::integer - 60
        AND minute + span > $1::integer
        AND minute < $3::integer
    UNION ALL
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM /*schema*/death
    WHERE span IN (1, 60)
        AND minute >= $4::integer
        AND minute < $2::integer
) AS counted
WHERE ($5::text IS NULL OR queue = $5)
    AND ($6::text IS NULL OR function = $6)
    AND ($7::text IS NULL OR reason = $7)
GROUP BY fingerprint, queue, function, reason

-- name: described
-- The common fields of a group of failures, and the task that died last.
-- Arrays: 1 fingerprints, 2 moments of the last death
SELECT
    given.fingerprint, g.error_class, g.shape, g.frame,
    coalesce(
        (
            SELECT max(d.example_id::text)
            FROM /*schema*/death_day AS d
            WHERE d.minute = floor(given.last_at / 60)::integer - floor(given.last_at / 60)::integer % 1440
                AND d.fingerprint = given.fingerprint
                AND d.last_at = given.last_at
        ),
        (
            SELECT max(d.example_id::text)
            FROM /*schema*/death AS d
            WHERE d.span IN (0, 1, 60)
                AND d.minute > floor(given.last_at / 60)::integer - 60
                AND d.minute <= floor(given.last_at / 60)::integer
                AND d.fingerprint = given.fingerprint
                AND d.last_at = given.last_at
        )
    )::uuid
FROM unnest($1::text[], $2::double precision[]) AS given (fingerprint, last_at)
LEFT JOIN /*schema*/failure_group AS g ON g.fingerprint = given.fingerprint

-- name: compact
-- Replace rows by the sums of their periods; return how many rows were replaced. Two processes replace different rows
-- at the same time; then a period has several sums. Deaths that were just appended are also added to the sum of their
-- day.
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
days AS (
    INSERT INTO /*schema*/death_day AS d (
        minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id
    )
    SELECT
        minute - minute % 1440 AS day, queue, function, upstream, reason, fingerprint, sum(deaths), min(first_at),
        max(last_at), (array_agg(example_id ORDER BY last_at DESC, example_id DESC))[1]
    FROM gone
    WHERE $1 = 0
    GROUP BY day, queue, function, upstream, reason, fingerprint
    ORDER BY day, queue, function, upstream, reason, fingerprint
    ON CONFLICT (minute, queue, function, upstream, reason, fingerprint) DO UPDATE
    SET
        deaths = d.deaths + excluded.deaths,
        first_at = least(d.first_at, excluded.first_at),
        last_at = greatest(d.last_at, excluded.last_at),
        example_id = CASE WHEN excluded.last_at >= d.last_at THEN excluded.example_id ELSE d.example_id END
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

-- name: old_hours
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM /*schema*/death
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/death
    WHERE span = 60
        AND minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: old_days
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM /*schema*/death_day
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM /*schema*/death_day
    WHERE minute < $1
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))

-- name: unused_groups
DELETE FROM /*schema*/failure_group AS g
WHERE NOT EXISTS (SELECT 1 FROM /*schema*/death_day AS d WHERE d.fingerprint = g.fingerprint)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/death AS d WHERE d.fingerprint = g.fingerprint)
    AND NOT EXISTS (
        SELECT 1 FROM /*schema*/attempt AS a WHERE a.fingerprint = g.fingerprint AND a.verdict = 'unknown'
    )

-- name: count_of_tenant
-- A tenant's dead letters by period, queue, function and reason.
-- 1 moment from which they died, 2 moment before which, 3 tenant, 4 minutes of a period, 5 queue or NULL, 6 function or
-- NULL, 7 reason or NULL, 8 fingerprints as a JSON array or NULL
SELECT
    floor(failed_at / 60)::integer - floor(failed_at / 60)::integer % $4::integer AS period, queue, function, reason,
    count(*)
FROM /*schema*/dead
WHERE failed_at >= $1::float8
    AND failed_at < $2::float8
    AND tenant = $3::text
    AND ($5::text IS NULL OR queue = $5)
    AND ($6::text IS NULL OR function = $6)
    AND ($7::text IS NULL OR reason = $7)
    AND ($8::text IS NULL OR fingerprint = ANY (ARRAY(SELECT json_array_elements_text($8::json))))
GROUP BY period, queue, function, reason
ORDER BY period, queue, function, reason

-- name: groups_of_tenant
-- A tenant's dead letters by fingerprint, queue, function and reason, with the letter that was enqueued last.
-- 1 moment from which they died, 2 moment before which, 3 tenant, 4 queue or NULL, 5 function or NULL, 6 reason or NULL
SELECT
    fingerprint, queue, function, reason, count(*)::bigint, min(failed_at), max(failed_at),
    max(task_id::text)::uuid
FROM /*schema*/dead
WHERE fingerprint IS NOT NULL
    AND failed_at >= $1::float8
    AND failed_at < $2::float8
    AND tenant = $3::text
    AND ($4::text IS NULL OR queue = $4)
    AND ($5::text IS NULL OR function = $5)
    AND ($6::text IS NULL OR reason = $6)
GROUP BY fingerprint, queue, function, reason

-- name: of_class
-- 1 error class
SELECT fingerprint
FROM /*schema*/failure_group
WHERE error_class = $1
