-- 018: maps: many tasks that were enqueued as one, with their progress and what follows when all have ended.
-- The tasks of a map are the rows of `task` with its id in `map_id`, a column of the first migration.
-- Locks: the index reads `task` once, and no task can be enqueued meanwhile; it stays empty. Older code runs on: it does
-- not end maps.

CREATE TABLE /*schema*/map (
    id           uuid PRIMARY KEY,       -- a UUIDv7
    name         text NOT NULL,
    function     text COLLATE "C" NOT NULL,          -- of its items
    tenant       text COLLATE "C" NOT NULL,
    key          text COLLATE "C",                   -- the idempotency key of the whole map
    fingerprint  bytea NOT NULL,         -- of function and items; empty without a key
    items        integer NOT NULL,
    max_failures integer,                -- more dead items cancel the rest; NULL: no limit
    on_complete  text,                   -- JSON of domain.final_hook.FinalHook
    created_at   double precision NOT NULL,
    cursor       integer NOT NULL DEFAULT 0,  -- all items before this position were final when maintenance looked
    cancelled_at double precision,                   -- since then its items are being cancelled
    cancel_why   text NOT NULL DEFAULT '',
    ended_at     double precision,                   -- when all items were first found final
    -- what it had come to then
    succeeded    integer NOT NULL DEFAULT 0,
    dead         integer NOT NULL DEFAULT 0,
    cancelled    integer NOT NULL DEFAULT 0,
    callback_id  uuid                    -- the task of `on_complete`
);
CREATE UNIQUE INDEX map_key ON /*schema*/map (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX map_open ON /*schema*/map (id) WHERE ended_at IS NULL;
CREATE INDEX map_ended ON /*schema*/map (ended_at) WHERE ended_at IS NOT NULL;

-- Final items whose tasks were deleted, so that the counts of a map stay exact.
CREATE TABLE /*schema*/map_deleted (
    map_id uuid NOT NULL,
    state  text COLLATE "C" NOT NULL CHECK (state IN ('succeeded', 'cancelled', 'dead')),
    items  integer NOT NULL,
    PRIMARY KEY (map_id, state)
);

CREATE INDEX task_map ON /*schema*/task (map_id, map_position) WHERE map_id IS NOT NULL;
