-- 005: statistics: the roll-up of minutes becomes one of hours and days, counts starts, and has the distribution of run
-- and wait times. Finishes append their counts to `tally`, as in PostgreSQL.
-- Locks: none that matter; the new columns have a constant default.

ALTER TABLE rollup ADD COLUMN started INTEGER NOT NULL DEFAULT 0;
CREATE INDEX rollup_minutes ON rollup (minute) WHERE minute % 60 <> 0;
CREATE INDEX rollup_hours ON rollup (minute) WHERE minute % 1440 <> 0 AND minute % 60 = 0;

-- What enqueues, finishes and cancels add to the roll-up, as appended rows. Maintenance folds them into it; readers add
-- both tables.
CREATE TABLE tally (
    minute       INTEGER NOT NULL,
    queue        TEXT NOT NULL,
    function     TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    enqueued     INTEGER NOT NULL DEFAULT 0,
    succeeded    INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    retried      INTEGER NOT NULL DEFAULT 0,
    released     INTEGER NOT NULL DEFAULT 0,
    run_seconds  REAL NOT NULL DEFAULT 0,
    wait_seconds REAL NOT NULL DEFAULT 0,
    first_final_at REAL,
    calls        INTEGER,                -- NULL, which takes no space, for none
    input_tokens INTEGER,
    output_tokens INTEGER,
    cost_microdollars INTEGER,
    started_minute INTEGER,              -- when the runs that the row counts started; NULL: it counts no run
    run_bucket   INTEGER,                -- their run time: a bucket of domain.durations
    wait_bucket  INTEGER                 -- their wait from ready to started
);

-- How many runs of a minute, an hour or a day took how long. Runs count when they end.
CREATE TABLE rollup_time (
    minute       INTEGER NOT NULL,
    queue        TEXT NOT NULL,
    function     TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('run', 'wait')),
    bucket       INTEGER NOT NULL,
    runs         INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, function, upstream, kind, bucket)
) WITHOUT ROWID;
CREATE INDEX rollup_time_minutes ON rollup_time (minute) WHERE minute % 60 <> 0;
CREATE INDEX rollup_time_hours ON rollup_time (minute) WHERE minute % 1440 <> 0 AND minute % 60 = 0;

-- Counters by tenant, by the hour from the start: 10,000 tenants make 240,000 rows a day.
CREATE TABLE rollup_tenant (
    minute       INTEGER NOT NULL,       -- the first of an hour or a day
    tenant       TEXT NOT NULL,
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
    PRIMARY KEY (minute, tenant)
) WITHOUT ROWID;
CREATE INDEX rollup_tenant_hours ON rollup_tenant (minute) WHERE minute % 1440 <> 0;
