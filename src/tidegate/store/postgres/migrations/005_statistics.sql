-- 005: statistics: the roll-up of minutes becomes one of hours and days, counts starts, and has the distribution of run
-- and wait times.
-- Locks: `rollup` and `tally` for a moment, and `rollup` against writes while two indexes are built.

ALTER TABLE /*schema*/rollup ADD COLUMN started bigint NOT NULL DEFAULT 0;
CREATE INDEX rollup_minutes ON /*schema*/rollup (minute) WHERE minute % 60 <> 0;
CREATE INDEX rollup_hours ON /*schema*/rollup (minute) WHERE minute % 1440 <> 0 AND minute % 60 = 0;

ALTER TABLE /*schema*/tally
    ADD COLUMN started_minute integer,  -- when the runs that the row counts started; NULL: it counts no run
    ADD COLUMN run_bucket smallint,     -- their run time: a bucket of domain.durations
    ADD COLUMN wait_bucket smallint;    -- their wait from ready to started

-- The bucket of a duration, as domain.durations has it.
CREATE FUNCTION /*schema*/bucket_1(seconds double precision) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN seconds > 0.01 THEN least(21, ceil(ln(seconds / 0.01) / ln(2::float8)))::smallint ELSE 0::smallint END $$;

-- How many runs of a minute, an hour or a day took how long. Runs count when they end.
CREATE TABLE /*schema*/rollup_time (
    minute       integer NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    function     text COLLATE "C" NOT NULL,
    upstream     text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'wait')),
    bucket       smallint NOT NULL,
    runs         bigint NOT NULL,
    PRIMARY KEY (minute, queue, function, upstream, kind, bucket)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX rollup_time_minutes ON /*schema*/rollup_time (minute) WHERE minute % 60 <> 0;
CREATE INDEX rollup_time_hours ON /*schema*/rollup_time (minute) WHERE minute % 1440 <> 0 AND minute % 60 = 0;

-- Counters by tenant, by the hour from the start: 10,000 tenants make 240,000 rows a day.
CREATE TABLE /*schema*/rollup_tenant (
    minute       integer NOT NULL,      -- the first of an hour or a day
    tenant       text COLLATE "C" NOT NULL,
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
    PRIMARY KEY (minute, tenant)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX rollup_tenant_hours ON /*schema*/rollup_tenant (minute) WHERE minute % 1440 <> 0;
