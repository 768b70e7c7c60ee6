-- count_windows: deaths, and tasks that ended, in some ranges of minutes. The row of an hour counts in the range that
-- contains its first minute.

-- name: since
-- The first hour and the first minute with folded counters, and the first minute with counters that are not folded yet.
SELECT
    (SELECT min(minute) FROM /*schema*/rollup_sum WHERE span = 60), (SELECT min(minute) FROM /*schema*/rollup),
    (SELECT min(minute) FROM /*schema*/tally)

-- name: deaths
-- The first three parameters are arrays.
-- 1 numbers of the ranges, 2 their first minutes, 3 the minutes after their last, 4 queue or NULL, 5 function or NULL,
-- 6 reason or NULL, 7 fingerprint or NULL
SELECT given.number, d.queue, d.function, d.reason, d.fingerprint, d.deaths
FROM unnest($1::integer[], $2::integer[], $3::integer[]) AS given (number, first_minute, end_minute)
CROSS JOIN LATERAL (
    SELECT queue, function, reason, fingerprint, sum(deaths)::bigint AS deaths
    FROM /*schema*/death
    WHERE span IN (0, 1, 60)
        AND minute >= given.first_minute
        AND minute < given.end_minute
        AND ($4::text IS NULL OR queue = $4)
        AND ($5::text IS NULL OR function = $5)
        AND ($6::text IS NULL OR reason = $6)
        AND ($7::text IS NULL OR fingerprint = $7)
    GROUP BY queue, function, reason, fingerprint
) AS d

-- name: ended
-- Tasks that succeeded or died in parts of the ranges. The first four parameters are arrays.
-- 1 numbers of the ranges, 2 whether to read the sums of hours, 3 first minutes, 4 minutes after the last, 5 queue or NULL,
-- 6 function or NULL
SELECT given.number, e.queue, e.function, e.ended
FROM unnest($1::integer[], $2::boolean[], $3::integer[], $4::integer[]) AS given (number, is_hours, first_minute, end_minute)
CROSS JOIN LATERAL (
    SELECT queue, function, sum(ended)::bigint AS ended
    FROM (
        SELECT queue, function, succeeded + dead AS ended
        FROM /*schema*/rollup_sum
        WHERE given.is_hours
            AND span = 60
            AND minute >= given.first_minute
            AND minute < given.end_minute
        UNION ALL
        SELECT queue, function, succeeded + dead
        FROM /*schema*/rollup
        WHERE NOT given.is_hours
            AND minute >= given.first_minute
            AND minute < given.end_minute
        UNION ALL
        SELECT queue, function, succeeded + dead
        FROM /*schema*/tally
        WHERE minute >= given.first_minute
            AND minute < given.end_minute
    ) AS counted
    WHERE ($5::text IS NULL OR queue = $5)
        AND ($6::text IS NULL OR function = $6)
    GROUP BY queue, function
    HAVING sum(ended) > 0
) AS e
