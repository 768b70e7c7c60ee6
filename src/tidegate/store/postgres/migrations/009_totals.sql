-- 009: totals: counters since the store was made, for metrics that must never fall. Maintenance adds to them what it
-- folds into the roll-up, so the retention of the roll-up does not change them.
-- Locks: `rollup` and `rollup_time` against writes, which only maintenance makes, while they are summed: a second for a
-- million rows.
-- Older code runs on, but what its maintenance folds is missing in the totals.

LOCK TABLE /*schema*/rollup, /*schema*/rollup_time IN SHARE ROW EXCLUSIVE MODE;

CREATE TABLE /*schema*/total (
    queue        text COLLATE "C" NOT NULL,
    function     text COLLATE "C" NOT NULL,
    upstream     text COLLATE "C" NOT NULL,
    enqueued     bigint NOT NULL,
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
    PRIMARY KEY (queue, function, upstream)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO /*schema*/total
SELECT
    queue, function, upstream, sum(enqueued), sum(succeeded), sum(dead), sum(cancelled), sum(retried), sum(released),
    sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens)
FROM /*schema*/rollup
GROUP BY queue, function, upstream;

-- How many runs took how long.
CREATE TABLE /*schema*/total_time (
    queue    text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'wait')),
    bucket   smallint NOT NULL,          -- of domain.durations
    runs     bigint NOT NULL,
    PRIMARY KEY (queue, function, kind, bucket)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO /*schema*/total_time
SELECT queue, function, kind, bucket, sum(runs)
FROM /*schema*/rollup_time
GROUP BY queue, function, kind, bucket;
