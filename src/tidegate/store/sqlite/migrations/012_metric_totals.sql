-- 012: metric totals: how long tasks took from their enqueue to their end, why runs were retried and why tasks died, how
-- calls ended, leases that ran out and ticks that did not fire: counters for metrics, which never fall.
-- Locks: none that matter; the new columns have a constant default.
-- Older code runs on; what it counts has no reason and no total time.

ALTER TABLE running ADD COLUMN since_at REAL;     -- when its task was enqueued or last redriven; NULL: unknown

ALTER TABLE tally ADD COLUMN total_seconds REAL;  -- from then to the end, of the tasks that the row counts as ended; NULL: none
ALTER TABLE tally ADD COLUMN total_bucket INTEGER;  -- the same as a bucket of domain.durations
ALTER TABLE tally ADD COLUMN reason TEXT;  -- why the runs were retried, why the tasks died, or how calls ended
ALTER TABLE tally ADD COLUMN ended_calls INTEGER;  -- calls of `upstream` that ended with `reason`; NULL: none

ALTER TABLE total ADD COLUMN total_seconds REAL NOT NULL DEFAULT 0;

-- The kind may also be `total`: from the enqueue or the last redrive of a task to its end.
ALTER TABLE total_time RENAME TO older_total_time;
CREATE TABLE total_time (
    queue    TEXT NOT NULL,
    function TEXT NOT NULL,
    kind     TEXT NOT NULL CHECK (kind IN ('run', 'wait', 'total')),
    bucket   INTEGER NOT NULL,           -- of domain.durations
    runs     INTEGER NOT NULL,
    PRIMARY KEY (queue, function, kind, bucket)
) WITHOUT ROWID;
INSERT INTO total_time (queue, function, kind, bucket, runs)
SELECT queue, function, kind, bucket, runs
FROM older_total_time;
DROP TABLE older_total_time;

-- Events since the store was made.
--   retried, dead   of a queue (`name`) and function, by reason; empty for those before this migration
--   call            calls of an upstream (`name`) by how they ended: succeeded, interrupted, or the reason of the failure
--   lease_expired   workers of a pool (`name`) whose lease ran out
--   tick            ticks of a schedule (`name`) that did not fire: missed, skipped
CREATE TABLE total_event (
    kind     TEXT NOT NULL CHECK (kind IN ('retried', 'dead', 'call', 'lease_expired', 'tick')),
    name     TEXT NOT NULL,
    function TEXT NOT NULL,
    reason   TEXT NOT NULL,
    events   INTEGER NOT NULL,
    PRIMARY KEY (kind, name, function, reason)
) WITHOUT ROWID;
INSERT INTO total_event (kind, name, function, reason, events)
SELECT 'retried', queue, function, '', sum(retried)
FROM total
GROUP BY queue, function
HAVING sum(retried) > 0;
INSERT INTO total_event (kind, name, function, reason, events)
SELECT 'dead', queue, function, '', sum(dead)
FROM total
GROUP BY queue, function
HAVING sum(dead) > 0;
