-- 014: failure states: dead letters and failures without a rule get the fingerprint of their failure, so that people find
-- them by it. What people said of a group of failures is kept: resolved, muted or reviewed. So is which days were
-- reported.
-- Locks: the file while the indexes are made, a second for a million attempts. Older code runs on; maintenance adds
-- the fingerprints that it leaves out.

ALTER TABLE dead ADD COLUMN fingerprint TEXT;     -- NULL: written by older code, until maintenance adds it
ALTER TABLE attempt ADD COLUMN fingerprint TEXT;  -- of deaths and of failures without a rule; else NULL

-- All that dead letters are searched by, so that a search reads no other table.
DROP INDEX dead_failed;
CREATE INDEX dead_failed ON dead (failed_at, task_id, queue, function, tenant, reason, error_class, fingerprint);
CREATE INDEX attempt_unknown ON attempt (fingerprint, ended_at) WHERE verdict = 'unknown';
CREATE INDEX attempt_unnamed ON attempt (task_id)
WHERE fingerprint IS NULL AND (outcome = 'dead' OR verdict = 'unknown');
CREATE INDEX dead_unnamed ON dead (task_id) WHERE fingerprint IS NULL;
CREATE INDEX death_day_fingerprint ON death_day (fingerprint, last_at);

CREATE TABLE failure_mark (
    fingerprint TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('resolved', 'muted', 'reviewed')),
    marked_at   REAL NOT NULL,
    marked_by   TEXT NOT NULL,
    note        TEXT NOT NULL,
    until_at    REAL,                    -- of a mute that ends by itself
    PRIMARY KEY (fingerprint, kind)
) WITHOUT ROWID;

-- The days whose summary was reported, so that one process does it.
CREATE TABLE daily_summary (
    day         TEXT PRIMARY KEY,        -- the date at which it was due, in the configured time zone
    reported_at REAL NOT NULL
) WITHOUT ROWID;
