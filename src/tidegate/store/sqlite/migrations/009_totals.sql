-- 009: totals: counters since the store was made, for metrics that must never fall. Maintenance adds to them what it
-- folds into the roll-up, so the retention of the roll-up does not change them.
-- Locks: the file while the roll-up is summed, a second for a million rows.
-- Older code runs on, but what its maintenance folds is missing in the totals.

CREATE TABLE total (
    queue        TEXT NOT NULL,
    function     TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    enqueued     INTEGER NOT NULL,
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
    PRIMARY KEY (queue, function, upstream)
) WITHOUT ROWID;
INSERT INTO total
SELECT
    queue, function, upstream, sum(enqueued), sum(succeeded), sum(dead), sum(cancelled), sum(retried), sum(released),
    sum(run_seconds), sum(wait_seconds), sum(calls), sum(input_tokens), sum(output_tokens)
FROM rollup
GROUP BY queue, function, upstream;

-- How many runs took how long.
CREATE TABLE total_time (
    queue    TEXT NOT NULL,
    function TEXT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('run', 'wait')),
    bucket   INTEGER NOT NULL,           -- of domain.durations
    runs     INTEGER NOT NULL,
    PRIMARY KEY (queue, function, kind, bucket)
) WITHOUT ROWID;
INSERT INTO total_time
SELECT queue, function, kind, bucket, sum(runs)
FROM rollup_time
GROUP BY queue, function, kind, bucket;
