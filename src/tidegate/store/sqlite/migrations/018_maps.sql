-- 018: maps: many tasks that were enqueued as one, with their progress and what follows when all have ended.
-- The tasks of a map are the rows of `task` with its id in `map_id`, a column of the first migration.
-- Locks: the index reads `task` once and stays empty. Older code runs on: it does not end maps.

CREATE TABLE map (
    id           BLOB PRIMARY KEY,       -- a UUIDv7
    name         TEXT NOT NULL,
    function     TEXT NOT NULL,          -- of its items
    tenant       TEXT NOT NULL,
    key          TEXT,                   -- the idempotency key of the whole map
    fingerprint  BLOB NOT NULL,          -- of function and items; empty without a key
    items        INTEGER NOT NULL,
    max_failures INTEGER,                -- more dead items cancel the rest; NULL: no limit
    on_complete  TEXT,                   -- JSON of domain.final_hook.FinalHook
    created_at   REAL NOT NULL,
    cursor       INTEGER NOT NULL DEFAULT 0,  -- all items before this position were final when maintenance looked
    cancelled_at REAL,                   -- since then its items are being cancelled
    cancel_why   TEXT NOT NULL DEFAULT '',
    ended_at     REAL,                   -- when all items were first found final
    -- what it had come to then
    succeeded    INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    callback_id  BLOB                    -- the task of `on_complete`
) WITHOUT ROWID;
CREATE UNIQUE INDEX map_key ON map (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX map_open ON map (id) WHERE ended_at IS NULL;
CREATE INDEX map_ended ON map (ended_at) WHERE ended_at IS NOT NULL;

-- Final items whose tasks were deleted, so that the counts of a map stay exact.
CREATE TABLE map_deleted (
    map_id BLOB NOT NULL,
    state  TEXT NOT NULL CHECK (state IN ('succeeded', 'cancelled', 'dead')),
    items  INTEGER NOT NULL,
    PRIMARY KEY (map_id, state)
) WITHOUT ROWID;

CREATE INDEX task_map ON task (map_id, map_position) WHERE map_id IS NOT NULL;
