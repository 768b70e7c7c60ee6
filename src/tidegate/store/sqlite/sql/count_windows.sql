-- count_windows: deaths, and tasks that ended, in some ranges of minutes. The row of an hour counts in the range that
-- contains its first minute.

-- name: since
-- The first hour and the first minute with folded counters, and the first minute with counters that are not folded yet.
SELECT
    (SELECT min(minute) FROM rollup_sum WHERE span = 60), (SELECT min(minute) FROM rollup),
    (SELECT min(minute) FROM tally)

-- name: deaths
-- 1 number of the range, 2 its first minute, 3 the minute after its last, 4 queue or NULL, 5 function or NULL, 6 reason
-- or NULL, 7 fingerprint or NULL
SELECT ?1, queue, function, reason, fingerprint, sum(deaths)
FROM death
WHERE span IN (0, 1, 60)
    AND minute >= ?2
    AND minute < ?3
    AND (?4 IS NULL OR queue = ?4)
    AND (?5 IS NULL OR function = ?5)
    AND (?6 IS NULL OR reason = ?6)
    AND (?7 IS NULL OR fingerprint = ?7)
GROUP BY queue, function, reason, fingerprint

-- name: ended
-- Tasks that succeeded or died in a part of a range.
-- 1 number of the range, 2 whether to read the sums of hours, 3 first minute, 4 minute after the last, 5 queue or NULL,
-- 6 function or NULL
SELECT ?1, queue, function, sum(ended)
FROM (
    SELECT queue, function, succeeded + dead AS ended
    FROM rollup_sum
    WHERE ?2
        AND span = 60
        AND minute >= ?3
        AND minute < ?4
    UNION ALL
    SELECT queue, function, succeeded + dead
    FROM rollup
    WHERE NOT ?2
        AND minute >= ?3
        AND minute < ?4
    UNION ALL
    SELECT queue, function, succeeded + dead
    FROM tally
    WHERE minute >= ?3
        AND minute < ?4
)
WHERE (?5 IS NULL OR queue = ?5)
    AND (?6 IS NULL OR function = ?6)
GROUP BY queue, function
HAVING sum(ended) > 0
