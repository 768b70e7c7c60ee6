-- 012: metric totals: how long tasks took from their enqueue to their end, why runs were retried and why tasks died, how
-- calls ended, leases that ran out and ticks that did not fire: counters for metrics, which never fall.
-- Locks: `tally`, `running` and `total` for a moment: the new columns have a constant default.
-- Older code runs on; what it counts has no reason and no total time.

ALTER TABLE /*schema*/running ADD COLUMN since_at double precision;     -- when its task was enqueued or last redriven; NULL: unknown

ALTER TABLE /*schema*/tally
    ADD COLUMN total_seconds double precision,
    ADD COLUMN total_bucket smallint,
    ADD COLUMN reason text COLLATE "C",
    ADD COLUMN ended_calls bigint;
-- total_seconds: from then to the end, of the tasks that the row counts as ended; NULL: none
-- total_bucket: the same as a bucket of domain.durations
-- reason: why the runs were retried, why the tasks died, or how calls ended
-- ended_calls: calls of `upstream` that ended with `reason`; NULL: none

ALTER TABLE /*schema*/total ADD COLUMN total_seconds double precision NOT NULL DEFAULT 0;

-- The kind may also be `total`: from the enqueue or the last redrive of a task to its end.
ALTER TABLE /*schema*/total_time DROP CONSTRAINT total_time_kind_check;
ALTER TABLE /*schema*/total_time
    ADD CONSTRAINT total_time_kind_check CHECK (kind IN ('run', 'wait', 'total'));

-- Events since the store was made.
--   retried, dead   of a queue (`name`) and function, by reason; empty for those before this migration
--   call            calls of an upstream (`name`) by how they ended: succeeded, interrupted, or the reason of the failure
--   lease_expired   workers of a pool (`name`) whose lease ran out
--   tick            ticks of a schedule (`name`) that did not fire: missed, skipped
CREATE TABLE /*schema*/total_event (
    kind     text COLLATE "C" NOT NULL CHECK (kind IN ('retried', 'dead', 'call', 'lease_expired', 'tick')),
    name     text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    reason   text COLLATE "C" NOT NULL,
    events   bigint NOT NULL,
    PRIMARY KEY (kind, name, function, reason)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO /*schema*/total_event (kind, name, function, reason, events)
SELECT 'retried', queue, function, '', sum(retried)
FROM /*schema*/total
GROUP BY queue, function
HAVING sum(retried) > 0;
INSERT INTO /*schema*/total_event (kind, name, function, reason, events)
SELECT 'dead', queue, function, '', sum(dead)
FROM /*schema*/total
GROUP BY queue, function
HAVING sum(dead) > 0;
