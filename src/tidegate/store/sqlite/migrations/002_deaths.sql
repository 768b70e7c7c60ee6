-- 002: deaths: count tasks when they die, by reason and by fingerprint, so that a redrive or a purge later does not
-- change the statistics of the day. Deaths before this migration are not counted.
-- Locks: none that matter, because the tables are new.

-- Appended when a task dies: a row for each batch of outcomes and group. Maintenance replaces the rows of a minute, an
-- hour and a day by their sums, so all rows of a period together are its deaths.
CREATE TABLE death (
    span        INTEGER NOT NULL DEFAULT 0,  -- minutes that the row sums: 1, 60 or 1440; 0: as appended
    minute      INTEGER NOT NULL,        -- floor(seconds since the epoch / 60), the first of the span
    queue       TEXT NOT NULL,
    function    TEXT NOT NULL,
    upstream    TEXT NOT NULL,
    reason      TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    deaths      INTEGER NOT NULL,
    first_at    REAL NOT NULL,
    last_at     REAL NOT NULL,
    example_id  BLOB NOT NULL            -- the task that died last; it may be redriven or deleted by now
);
CREATE INDEX death_span ON death (span, minute);

-- What the failures with one fingerprint have in common.
CREATE TABLE failure_group (
    fingerprint TEXT PRIMARY KEY,
    error_class TEXT NOT NULL,           -- empty: no exception was raised
    shape       TEXT NOT NULL,           -- the message without what differs from task to task
    frame       TEXT NOT NULL            -- the innermost frame of the application's code; may be empty
) WITHOUT ROWID;
