-- 002: deaths: count tasks when they die, by reason and by fingerprint, so that a redrive or a purge later does not
-- change the statistics of the day. Deaths before this migration are not counted.
-- Locks: none that matter, because the tables are new.

-- Appended when a task dies: a row for each batch of outcomes and group. Maintenance replaces the rows of a minute, an
-- hour and a day by their sums, so all rows of a period together are its deaths.
CREATE TABLE /*schema*/death (
    span        smallint NOT NULL DEFAULT 0,  -- minutes that the row sums: 1, 60 or 1440; 0: as appended
    minute      integer NOT NULL,       -- floor(seconds since the epoch / 60), the first of the span
    queue       text COLLATE "C" NOT NULL,
    function    text COLLATE "C" NOT NULL,
    upstream    text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    deaths      bigint NOT NULL,
    first_at    double precision NOT NULL,
    last_at     double precision NOT NULL,
    example_id  uuid NOT NULL           -- the task that died last; it may be redriven or deleted by now
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX death_span ON /*schema*/death (span, minute);

-- What the failures with one fingerprint have in common.
CREATE TABLE /*schema*/failure_group (
    fingerprint text COLLATE "C" PRIMARY KEY,
    error_class text COLLATE "C" NOT NULL,  -- empty: no exception was raised
    shape       text COLLATE "C" NOT NULL,  -- the message without what differs from task to task
    frame       text COLLATE "C" NOT NULL   -- the innermost frame of the application's code; may be empty
);
