-- 011: history sums: counters by the hour and by the day from the start, so that a long time is read from few rows. Until
-- now, hours and days were made from minutes when those were old: a statistic of 40 days read half a million rows.
-- Locks: the file while the roll-up is summed, a second for a million rows.
-- Older code runs on, but what its maintenance folds is missing in the sums.

-- The counters of `rollup` by the hour and the day. `rollup` has those of the last two days by the minute.
CREATE TABLE rollup_sum (
    span         INTEGER NOT NULL,      -- minutes that the row sums: 60 or 1440
    minute       INTEGER NOT NULL,       -- the first of the span
    queue        TEXT NOT NULL,
    function     TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    enqueued     INTEGER NOT NULL,
    started      INTEGER NOT NULL,
    succeeded    INTEGER NOT NULL,
    dead         INTEGER NOT NULL,
    cancelled    INTEGER NOT NULL,
    retried      INTEGER NOT NULL,
    released     INTEGER NOT NULL,
    run_seconds  REAL NOT NULL,
    wait_seconds REAL NOT NULL,
    calls        INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    PRIMARY KEY (span, minute, queue, function, upstream)
) WITHOUT ROWID;
INSERT INTO rollup_sum
SELECT
    60, minute - minute % 60, queue, function, upstream, sum(enqueued), sum(started), sum(succeeded), sum(dead),
    sum(cancelled), sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens),
    sum(output_tokens)
FROM rollup
GROUP BY minute - minute % 60, queue, function, upstream;
INSERT INTO rollup_sum
SELECT
    1440, minute - minute % 1440, queue, function, upstream, sum(enqueued), sum(started), sum(succeeded), sum(dead),
    sum(cancelled), sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens),
    sum(output_tokens)
FROM rollup
GROUP BY minute - minute % 1440, queue, function, upstream;

-- The same of `rollup_time`, which has the last six hours by the minute.
CREATE TABLE rollup_time_sum (
    span         INTEGER NOT NULL,
    minute       INTEGER NOT NULL,
    queue        TEXT NOT NULL,
    function     TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('run', 'wait')),
    bucket       INTEGER NOT NULL,
    runs         INTEGER NOT NULL,
    PRIMARY KEY (span, minute, queue, function, upstream, kind, bucket)
) WITHOUT ROWID;
INSERT INTO rollup_time_sum
SELECT 60, minute - minute % 60, queue, function, upstream, kind, bucket, sum(runs)
FROM rollup_time
GROUP BY minute - minute % 60, queue, function, upstream, kind, bucket;
INSERT INTO rollup_time_sum
SELECT 1440, minute - minute % 1440, queue, function, upstream, kind, bucket, sum(runs)
FROM rollup_time
GROUP BY minute - minute % 1440, queue, function, upstream, kind, bucket;

-- Deaths by the day, without those just appended to `death`. `death` has them by the minute for two days, and by the hour
-- for 35.
CREATE TABLE death_day (
    minute       INTEGER NOT NULL,       -- the first of the day
    queue        TEXT NOT NULL,
    function     TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    reason       TEXT NOT NULL,
    fingerprint  TEXT NOT NULL,
    deaths       INTEGER NOT NULL,
    first_at     REAL NOT NULL,
    last_at      REAL NOT NULL,
    example_id   BLOB NOT NULL,      -- the task that died last; it may be redriven or deleted by now
    PRIMARY KEY (minute, queue, function, upstream, reason, fingerprint)
) WITHOUT ROWID;
INSERT INTO death_day
SELECT day, queue, function, upstream, reason, fingerprint, sum(deaths), min(first_at), max(last_at), max(example)
FROM (
    SELECT
        minute - minute % 1440 AS day, queue, function, upstream, reason, fingerprint, deaths, first_at, last_at,
        first_value(example_id) OVER (
            PARTITION BY minute - minute % 1440, queue, function, upstream, reason, fingerprint
            ORDER BY last_at DESC, example_id DESC
        ) AS example
    FROM death
    WHERE span IN (1, 60, 1440)
)
GROUP BY day, queue, function, upstream, reason, fingerprint;

DROP INDEX rollup_minutes;
DROP INDEX rollup_hours;
DROP INDEX rollup_time_minutes;
DROP INDEX rollup_time_hours;
DELETE FROM death
WHERE span = 1440;
