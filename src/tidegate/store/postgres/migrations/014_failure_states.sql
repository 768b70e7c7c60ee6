-- 014: failure states: dead letters and failures without a rule get the fingerprint of their failure, so that people find
-- them by it. What people said of a group of failures is kept: resolved, muted or reviewed. So is which days were
-- reported.
-- Locks: `dead`, `attempt` and `death_day` against writes while their indexes are made, a second for a million attempts.
-- Older code runs on; maintenance adds the fingerprints that it leaves out.

ALTER TABLE /*schema*/dead ADD COLUMN fingerprint text COLLATE "C";     -- NULL: written by older code, until maintenance adds it
ALTER TABLE /*schema*/attempt ADD COLUMN fingerprint text COLLATE "C";  -- of deaths and of failures without a rule; else NULL

-- What dead letters are searched by, so that a search reads the table little. Without the error class, which may be longer
-- than an index row.
DROP INDEX /*schema*/dead_failed;
CREATE INDEX dead_failed ON /*schema*/dead (failed_at, task_id)
INCLUDE (queue, function, tenant, reason, fingerprint);
CREATE INDEX attempt_unknown ON /*schema*/attempt (fingerprint, ended_at) INCLUDE (task_id) WHERE verdict = 'unknown';
CREATE INDEX attempt_unnamed ON /*schema*/attempt (task_id)
WHERE fingerprint IS NULL AND (outcome = 'dead' OR verdict = 'unknown');
CREATE INDEX dead_unnamed ON /*schema*/dead (task_id) WHERE fingerprint IS NULL;
CREATE INDEX death_day_fingerprint ON /*schema*/death_day (fingerprint, last_at);

CREATE TABLE /*schema*/failure_mark (
    fingerprint text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL CHECK (kind IN ('resolved', 'muted', 'reviewed')),
    marked_at   double precision NOT NULL,
    marked_by   text COLLATE "C" NOT NULL,
    note        text COLLATE "C" NOT NULL,
    until_at    double precision,        -- of a mute that ends by itself
    PRIMARY KEY (fingerprint, kind)
);

-- The days whose summary was reported, so that one process does it.
CREATE TABLE /*schema*/daily_summary (
    day         text COLLATE "C" PRIMARY KEY,  -- the date at which it was due, in the configured time zone
    reported_at double precision NOT NULL
);
