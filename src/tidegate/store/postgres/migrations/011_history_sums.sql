-- 011: history sums: counters by the hour and by the day from the start, so that a long time is read from few rows. Until
-- now, hours and days were made from minutes when those were old: a statistic of 40 days read half a million rows.
-- Locks: `rollup`, `rollup_time` and `death` against writes while they are summed: a second for a million rows.
-- Older code runs on, but what its maintenance folds is missing in the sums.

LOCK TABLE /*schema*/rollup, /*schema*/rollup_time, /*schema*/death IN SHARE ROW EXCLUSIVE MODE;

-- The counters of `rollup` by the hour and the day. `rollup` has those of the last two days by the minute.
CREATE TABLE /*schema*/rollup_sum (
    span         smallint NOT NULL,      -- minutes that the row sums: 60 or 1440
    minute       integer NOT NULL,       -- the first of the span
    queue        text COLLATE "C" NOT NULL,
    function     text COLLATE "C" NOT NULL,
    upstream     text COLLATE "C" NOT NULL,
    enqueued     bigint NOT NULL,
    started      bigint NOT NULL,
    succeeded    bigint NOT NULL,
    dead         bigint NOT NULL,
    cancelled    bigint NOT NULL,
    retried      bigint NOT NULL,
    released     bigint NOT NULL,
    run_seconds  double precision NOT NULL,
    wait_seconds double precision NOT NULL,
    calls        bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    PRIMARY KEY (span, minute, queue, function, upstream)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
INSERT INTO /*schema*/rollup_sum
SELECT
    60, minute - minute % 60, queue, function, upstream, sum(enqueued), sum(started), sum(succeeded), sum(dead),
    sum(cancelled), sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens),
    sum(output_tokens)
FROM /*schema*/rollup
GROUP BY minute - minute % 60, queue, function, upstream;
INSERT INTO /*schema*/rollup_sum
SELECT
    1440, minute - minute % 1440, queue, function, upstream, sum(enqueued), sum(started), sum(succeeded), sum(dead),
    sum(cancelled), sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens),
    sum(output_tokens)
FROM /*schema*/rollup
GROUP BY minute - minute % 1440, queue, function, upstream;

-- The same of `rollup_time`, which has the last six hours by the minute.
CREATE TABLE /*schema*/rollup_time_sum (
    span         smallint NOT NULL,
    minute       integer NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    function     text COLLATE "C" NOT NULL,
    upstream     text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'wait')),
    bucket       smallint NOT NULL,
    runs         bigint NOT NULL,
    PRIMARY KEY (span, minute, queue, function, upstream, kind, bucket)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
INSERT INTO /*schema*/rollup_time_sum
SELECT 60, minute - minute % 60, queue, function, upstream, kind, bucket, sum(runs)
FROM /*schema*/rollup_time
GROUP BY minute - minute % 60, queue, function, upstream, kind, bucket;
INSERT INTO /*schema*/rollup_time_sum
SELECT 1440, minute - minute % 1440, queue, function, upstream, kind, bucket, sum(runs)
FROM /*schema*/rollup_time
GROUP BY minute - minute % 1440, queue, function, upstream, kind, bucket;

-- Deaths by the day, without those just appended to `death`. `death` has them by the minute for two days, and by the hour
-- for 35.
CREATE TABLE /*schema*/death_day (
    minute       integer NOT NULL,       -- the first of the day
    queue        text COLLATE "C" NOT NULL,
    function     text COLLATE "C" NOT NULL,
    upstream     text COLLATE "C" NOT NULL,
    reason       text COLLATE "C" NOT NULL,
    fingerprint  text COLLATE "C" NOT NULL,
    deaths       bigint NOT NULL,
    first_at     double precision NOT NULL,
    last_at      double precision NOT NULL,
    example_id   uuid NOT NULL,      -- the task that died last; it may be redriven or deleted by now
    PRIMARY KEY (minute, queue, function, upstream, reason, fingerprint)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
INSERT INTO /*schema*/death_day
SELECT
    minute - minute % 1440, queue, function, upstream, reason, fingerprint, sum(deaths), min(first_at), max(last_at),
    (array_agg(example_id ORDER BY last_at DESC, example_id DESC))[1]
FROM /*schema*/death
WHERE span IN (1, 60, 1440)
GROUP BY minute - minute % 1440, queue, function, upstream, reason, fingerprint;

DROP INDEX /*schema*/rollup_minutes;
DROP INDEX /*schema*/rollup_hours;
DROP INDEX /*schema*/rollup_time_minutes;
DROP INDEX /*schema*/rollup_time_hours;
DELETE FROM /*schema*/death
WHERE span = 1440;
