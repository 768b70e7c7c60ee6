-- 003: upstreams: gates, limits and the retry budget.
-- Locks: `ready`, `running` and `waiting` for the time it takes to read them once, for the partial indexes. The new
-- columns have constant defaults, so no row is rewritten.

-- What stands before tasks: one row an upstream, a function with a rate limit, and the whole system. Written
-- often and never larger: room in each page keeps the update there (HOT).
CREATE TABLE /*schema*/gate (
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('upstream', 'function', 'system')),
    name       text COLLATE "C" NOT NULL,  -- empty for the system
    limits     text COLLATE "C" NOT NULL,  -- JSON of domain.upstream.Limits
    state      text COLLATE "C" NOT NULL,  -- JSON of domain.upstream.Gate
    meters     text COLLATE "C" NOT NULL,  -- JSON object {window: domain.upstream.Meter}
    changed_at double precision NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (
    fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);

CREATE INDEX ready_upstream ON /*schema*/ready (upstream, queue) WHERE upstream <> '';

ALTER TABLE /*schema*/running
    ADD COLUMN probe boolean NOT NULL DEFAULT false;          -- tries whether a held upstream works
CREATE INDEX running_upstream ON /*schema*/running (upstream) WHERE upstream <> '';

ALTER TABLE /*schema*/waiting
    ADD COLUMN spends smallint NOT NULL DEFAULT 0,            -- 1: its next run spends the retry budget
    ADD COLUMN urgent smallint NOT NULL DEFAULT 0,            -- 1: may use the reserved part of it
    ADD COLUMN since_at double precision,                     -- when it began to wait for a retry
    ADD COLUMN floor_at double precision,                     -- not before this, by the server's word
    ADD COLUMN held_by text COLLATE "C" NOT NULL DEFAULT '';  -- 'gate', 'upstream', 'system': put off by it
CREATE INDEX waiting_held ON /*schema*/waiting (held_by, upstream) WHERE held_by <> '';
CREATE INDEX waiting_upstream ON /*schema*/waiting (upstream, since_at) WHERE upstream <> '';
