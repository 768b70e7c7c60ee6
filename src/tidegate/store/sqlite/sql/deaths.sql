-- deaths: count tasks when they die, by reason and fingerprint, and read the counts. Rows of a period are replaced by
-- their sums later, so each read adds rows up.

-- name: add
-- 1 minute, 2 queue, 3 function, 4 upstream, 5 reason, 6 fingerprint, 7 deaths, 8 now, 9 id of a task
INSERT INTO death (minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9)

-- name: describe
-- 1 fingerprint, 2 error class, 3 shape of the message, 4 frame
INSERT INTO failure_group (fingerprint, error_class, shape, frame)
VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: count
-- By period, queue, function and reason. Days are read from `death_day`, which has all deaths except those just
-- appended. The rest of the time is read from `death`. A row that sums an hour is included if any part of it is in the
-- range.
-- 1 first minute, 2 minute after the last, 3 the first day to read, 4 the day after the last one, 5 minutes of a period,
-- 6 queue or NULL, 7 function or NULL, 8 reason or NULL, 9 fingerprints as a JSON array or NULL
SELECT minute - minute % ?5 AS period, queue, function, reason, sum(deaths)
FROM (
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM death_day
    WHERE minute >= ?3
        AND minute < ?4
    UNION ALL
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM death
    WHERE span = 0
        AND minute >= ?1
        AND minute < ?2
    UNION ALL
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM death
    WHERE span IN (1, 60)
        AND minute > ?1 - 60
        AND minute + span > ?1
        AND minute < ?3
    UNION ALL
    SELECT minute, queue, function, reason, fingerprint, deaths
    FROM death
    WHERE span IN (1, 60)
        AND minute >= ?4
        AND minute < ?2
) AS counted
WHERE (?6 IS NULL OR queue = ?6)
    AND (?7 IS NULL OR function = ?7)
    AND (?8 IS NULL OR reason = ?8)
    AND (?9 IS NULL OR fingerprint IN (SELECT value FROM json_each(?9)))
GROUP BY period, queue, function, reason
ORDER BY period, queue, function, reason

-- name: groups
-- By fingerprint, queue, function and reason. 1 to 4 as above, 5 queue or NULL, 6 function or NULL, 7 reason or NULL
SELECT fingerprint, queue, function, reason, sum(deaths), min(first_at), max(last_at)
FROM (
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM death_day
    WHERE minute >= ?3
        AND minute < ?4
    UNION ALL
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM death
    WHERE span = 0
        AND minute >= ?1
        AND minute < ?2
    UNION ALL
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM death
    WHERE span IN (1, 60)
        AND minute > ?1 - 60
        AND minute + span > ?1
        AND minute < ?3
    UNION ALL
    SELECT fingerprint, queue, function, reason, deaths, first_at, last_at
    FROM death
    WHERE span IN (1, 60)
        AND minute >= ?4
        AND minute < ?2
) AS counted
WHERE (?5 IS NULL OR queue = ?5)
    AND (?6 IS NULL OR function = ?6)
    AND (?7 IS NULL OR reason = ?7)
GROUP BY fingerprint, queue, function, reason

-- name: described
-- The common fields of a group of failures, and the task that died last.
-- 1 fingerprint, 2 moment of the last death
SELECT
    ?1, g.error_class, g.shape, g.frame,
    coalesce(
        (
            SELECT max(d.example_id)
            FROM death_day AS d
            WHERE d.minute = cast(?2 / 60 AS INTEGER) - cast(?2 / 60 AS INTEGER) % 1440
                AND d.fingerprint = ?1
                AND d.last_at = ?2
        ),
        (
            SELECT max(d.example_id)
            FROM death AS d
            WHERE d.span IN (0, 1, 60)
                AND d.minute > cast(?2 / 60 AS INTEGER) - 60
                AND d.minute <= cast(?2 / 60 AS INTEGER)
                AND d.fingerprint = ?1
                AND d.last_at = ?2
        )
    )
FROM (SELECT 1) AS always
LEFT JOIN failure_group AS g ON g.fingerprint = ?1

-- name: next_period
-- The earliest minute whose rows may be summed.
-- 1 span of the rows, 2 minute before which they may be summed
SELECT min(minute)
FROM death
WHERE span = ?1
    AND minute < ?2

-- name: sum_period
-- 1 span of the rows, 2 first minute of the period, 3 its minutes, which become the span
INSERT INTO death (
    span, minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id
)
SELECT ?3, ?2, queue, function, upstream, reason, fingerprint, sum(deaths), min(first_at), max(last_at), max(example)
FROM (
    SELECT
        queue, function, upstream, reason, fingerprint, deaths, first_at, last_at,
        first_value(example_id) OVER (
            PARTITION BY queue, function, upstream, reason, fingerprint ORDER BY last_at DESC, example_id DESC
        ) AS example
    FROM death
    WHERE span = ?1
        AND minute >= ?2
        AND minute < ?2 + ?3
)
GROUP BY queue, function, upstream, reason, fingerprint

-- name: sum_days
-- Add the deaths that were appended in a minute to the sum of its day.
-- 1 minute
INSERT INTO death_day (
    minute, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at, example_id
)
SELECT
    ?1 - ?1 % 1440, queue, function, upstream, reason, fingerprint, sum(deaths), min(first_at), max(last_at), max(example)
FROM (
    SELECT
        queue, function, upstream, reason, fingerprint, deaths, first_at, last_at,
        first_value(example_id) OVER (
            PARTITION BY queue, function, upstream, reason, fingerprint ORDER BY last_at DESC, example_id DESC
        ) AS example
    FROM death
    WHERE span = 0
        AND minute = ?1
)
WHERE true
GROUP BY queue, function, upstream, reason, fingerprint
ON CONFLICT (minute, queue, function, upstream, reason, fingerprint) DO UPDATE
SET
    deaths = deaths + excluded.deaths,
    first_at = min(first_at, excluded.first_at),
    last_at = max(last_at, excluded.last_at),
    example_id = CASE WHEN excluded.last_at >= last_at THEN excluded.example_id ELSE example_id END

-- name: drop_period
-- 1 span of the rows, 2 first minute of the period, 3 its minutes
DELETE FROM death
WHERE span = ?1
    AND minute >= ?2
    AND minute < ?2 + ?3

-- name: has_old_hours
-- 1 minute before which they were counted
SELECT 1
FROM death
WHERE span = 60
    AND minute < ?1
LIMIT 1

-- name: old_hours
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM death
WHERE rowid IN (
    SELECT rowid
    FROM death
    WHERE span = 60
        AND minute < ?1
    LIMIT ?2
)

-- name: has_old_days
-- 1 minute before which they were counted
SELECT 1
FROM death_day
WHERE minute < ?1
LIMIT 1

-- name: old_days
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM death_day
WHERE (minute, queue, function, upstream, reason, fingerprint) IN (
    SELECT minute, queue, function, upstream, reason, fingerprint
    FROM death_day
    WHERE minute < ?1
    LIMIT ?2
)

-- name: unused_groups
DELETE FROM failure_group
WHERE fingerprint NOT IN (SELECT fingerprint FROM death_day)
    AND fingerprint NOT IN (SELECT fingerprint FROM death)
    AND NOT EXISTS (
        SELECT 1 FROM attempt AS a WHERE a.fingerprint = failure_group.fingerprint AND a.verdict = 'unknown'
    )

-- name: count_of_tenant
-- A tenant's dead letters by period, queue, function and reason.
-- 1 moment from which they died, 2 moment before which, 3 tenant, 4 minutes of a period, 5 queue or NULL, 6 function or
-- NULL, 7 reason or NULL, 8 fingerprints as a JSON array or NULL
SELECT
    cast(failed_at / 60 AS INTEGER) - cast(failed_at / 60 AS INTEGER) % ?4 AS period, queue, function, reason, count(*)
FROM dead
WHERE failed_at >= ?1
    AND failed_at < ?2
    AND tenant = ?3
    AND (?5 IS NULL OR queue = ?5)
    AND (?6 IS NULL OR function = ?6)
    AND (?7 IS NULL OR reason = ?7)
    AND (?8 IS NULL OR fingerprint IN (SELECT value FROM json_each(?8)))
GROUP BY period, queue, function, reason
ORDER BY period, queue, function, reason

-- name: groups_of_tenant
-- A tenant's dead letters by fingerprint, queue, function and reason, with the letter that was enqueued last.
-- 1 moment from which they died, 2 moment before which, 3 tenant, 4 queue or NULL, 5 function or NULL, 6 reason or NULL
SELECT
    fingerprint, queue, function, reason, count(*), min(failed_at), max(failed_at),
    max(task_id)
FROM dead
WHERE fingerprint IS NOT NULL
    AND failed_at >= ?1
    AND failed_at < ?2
    AND tenant = ?3
    AND (?4 IS NULL OR queue = ?4)
    AND (?5 IS NULL OR function = ?5)
    AND (?6 IS NULL OR reason = ?6)
GROUP BY fingerprint, queue, function, reason

-- name: of_class
-- 1 error class
SELECT fingerprint
FROM failure_group
WHERE error_class = ?1
