-- 003: upstreams: gates, limits and the retry budget.
-- Locks: none to speak of. The new columns have constant defaults, so no row is rewritten; the partial
-- indexes read `ready`, `running` and `waiting` once.

-- What stands before tasks: one row an upstream, a function with a rate limit, and the whole system.
CREATE TABLE gate (
    kind       TEXT NOT NULL CHECK (kind IN ('upstream', 'function', 'system')),
    name       TEXT NOT NULL,            -- empty for the system
    limits     TEXT NOT NULL,            -- JSON of domain.upstream.Limits
    state      TEXT NOT NULL,            -- JSON of domain.upstream.Gate
    meters     TEXT NOT NULL,            -- JSON object {window: domain.upstream.Meter}
    changed_at REAL NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE INDEX ready_upstream ON ready (upstream, queue) WHERE upstream <> '';

ALTER TABLE running ADD COLUMN probe INTEGER NOT NULL DEFAULT 0;      -- 1: tries whether a held upstream works
CREATE INDEX running_upstream ON running (upstream) WHERE upstream <> '';

ALTER TABLE waiting ADD COLUMN spends INTEGER NOT NULL DEFAULT 0;     -- 1: its next run spends the retry budget
ALTER TABLE waiting ADD COLUMN urgent INTEGER NOT NULL DEFAULT 0;     -- 1: may use the reserved part of it
ALTER TABLE waiting ADD COLUMN since_at REAL;                         -- when it began to wait for a retry
ALTER TABLE waiting ADD COLUMN floor_at REAL;                         -- not before this, by the server's word
ALTER TABLE waiting ADD COLUMN held_by TEXT NOT NULL DEFAULT '';      -- 'gate', 'upstream', 'system': put off by it
CREATE INDEX waiting_held ON waiting (held_by, upstream) WHERE held_by <> '';
CREATE INDEX waiting_upstream ON waiting (upstream, since_at) WHERE upstream <> '';
