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
-- By period, queue, function and reason. A row that sums an hour or a day is included if any part of it is in the range.
-- 1 first minute, 2 minute after the last, 3 minutes of a period, 4 queue or NULL, 5 function or NULL, 6 reason or
-- NULL
SELECT minute - minute % ?3, queue, function, reason, sum(deaths)
FROM death
WHERE span IN (0, 1, 60, 1440)
    AND minute > ?1 - 1440
    AND minute + max(span, 1) > ?1
    AND minute < ?2
    AND (?4 IS NULL OR queue = ?4)
    AND (?5 IS NULL OR function = ?5)
    AND (?6 IS NULL OR reason = ?6)
GROUP BY minute - minute % ?3, queue, function, reason
ORDER BY 1, 2, 3, 4

-- name: groups
-- By fingerprint, the most deaths first.
-- 1 first minute, 2 minute after the last, 3 queue or NULL, 4 function or NULL, 5 reason or NULL, 6 how many at most
SELECT
    d.fingerprint, g.error_class, g.shape, g.frame, sum(d.deaths) AS deaths, min(d.first_at), max(d.last_at),
    json_group_array(DISTINCT d.function), json_group_array(DISTINCT d.queue), json_group_array(DISTINCT d.reason),
    max(d.example)
FROM (
    SELECT
        fingerprint, function, queue, reason, deaths, first_at, last_at,
        first_value(example_id) OVER (PARTITION BY fingerprint ORDER BY last_at DESC, example_id DESC) AS example
    FROM death
    WHERE span IN (0, 1, 60, 1440)
        AND minute > ?1 - 1440
        AND minute + max(span, 1) > ?1
        AND minute < ?2
        AND (?3 IS NULL OR queue = ?3)
        AND (?4 IS NULL OR function = ?4)
        AND (?5 IS NULL OR reason = ?5)
) AS d
LEFT JOIN failure_group AS g ON g.fingerprint = d.fingerprint
GROUP BY d.fingerprint
ORDER BY deaths DESC, d.fingerprint
LIMIT ?6

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

-- name: drop_period
-- 1 span of the rows, 2 first minute of the period, 3 its minutes
DELETE FROM death
WHERE span = ?1
    AND minute >= ?2
    AND minute < ?2 + ?3

-- name: old
-- 1 minute before which they were counted, 2 how many at most
DELETE FROM death
WHERE rowid IN (
    SELECT rowid
    FROM death
    WHERE span IN (0, 1, 60, 1440)
        AND minute < ?1
    LIMIT ?2
)

-- name: has_old
-- 1 minute before which they were counted
SELECT 1
FROM death
WHERE span IN (0, 1, 60, 1440)
    AND minute < ?1
LIMIT 1

-- name: unused_groups
DELETE FROM failure_group
WHERE fingerprint NOT IN (SELECT fingerprint FROM death)
