-- 013: operations: what people do to many tasks at once, and the letters of each redrive, so that maintenance can send
-- them little by little and a person can follow, stop and undo it.
-- Locks: none that matter, because the tables are new. Older code runs on: it does not advance operations.

CREATE TABLE operation (
    id         TEXT PRIMARY KEY,         -- a UUIDv7
    kind       TEXT NOT NULL CHECK (kind IN ('redrive', 'purge')),
    state      TEXT NOT NULL CHECK (state IN (
        'choosing', 'canary', 'feeding', 'purging', 'undoing', 'done', 'stopped', 'aborted', 'undone'
    )),
    started_by TEXT NOT NULL,
    tenant     TEXT,                     -- whose letters it may touch; NULL: those of all tenants
    filter     TEXT NOT NULL,            -- JSON of store.rows.TaskFilter; empty: it has a list of ids
    settings   TEXT NOT NULL,            -- JSON of store.operation_rows.RedriveSettings
    preview    INTEGER NOT NULL,         -- letters that matched when a person started it
    chosen     INTEGER NOT NULL DEFAULT 0,
    sent       INTEGER NOT NULL DEFAULT 0,  -- to the main queue, or purged
    succeeded  INTEGER NOT NULL DEFAULT 0,
    died       INTEGER NOT NULL DEFAULT 0,
    cancelled  INTEGER NOT NULL DEFAULT 0,  -- or deleted
    skipped    INTEGER NOT NULL DEFAULT 0,
    undone     INTEGER NOT NULL DEFAULT 0,
    cursor     BLOB,                     -- the last letter that the filter chose
    canary     INTEGER NOT NULL DEFAULT 0,  -- how many letters the canary has
    canary_at  REAL,                     -- when the first of them was sent
    note       TEXT NOT NULL DEFAULT '', -- what it waits for, or why it ended
    started_at REAL NOT NULL,
    changed_at REAL NOT NULL,
    ended_at   REAL,
    revision   INTEGER NOT NULL DEFAULT 0   -- +1 at each step: a step planned before does nothing
) WITHOUT ROWID;
-- The operations that maintenance must look at.
CREATE INDEX operation_open ON operation (id)
WHERE ended_at IS NULL OR sent > succeeded + died + cancelled + undone;
CREATE INDEX operation_started ON operation (started_at);
CREATE INDEX operation_ended ON operation (ended_at) WHERE ended_at IS NOT NULL;

-- One row for each letter of a redrive. It stays when its task is deleted, and has its own retention.
CREATE TABLE operation_task (
    operation_id TEXT NOT NULL,
    task_id    BLOB NOT NULL,
    state      TEXT NOT NULL CHECK (state IN (
        'chosen', 'sent', 'succeeded', 'died', 'cancelled', 'skipped', 'undone'
    )),
    queue      TEXT NOT NULL,            -- to which it is sent
    upstream   TEXT NOT NULL,
    function   TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    run        INTEGER NOT NULL,         -- that died; a later run is one of the redrive
    lot        INTEGER NOT NULL,         -- random: the order in which letters are sent
    in_canary  INTEGER NOT NULL DEFAULT 0,
    sent_at    REAL,
    first_try  TEXT NOT NULL DEFAULT '' CHECK (first_try IN ('', 'succeeded', 'failed')),
    first_at   REAL,                     -- when its first attempt was found to have ended
    why        TEXT NOT NULL DEFAULT '', -- why it was skipped, or of what it died again
    was        TEXT,                     -- JSON of its counters and failure before, while it can be undone
    args       BLOB,                     -- its arguments before, if they were changed
    codec_tag  TEXT,
    PRIMARY KEY (operation_id, task_id)
) WITHOUT ROWID;
CREATE INDEX operation_task_next ON operation_task (operation_id, state, queue, upstream, function, in_canary, lot);
CREATE INDEX operation_task_canary ON operation_task (operation_id) WHERE in_canary = 1;
CREATE INDEX operation_task_first ON operation_task (operation_id, first_at) WHERE first_at IS NOT NULL;
CREATE INDEX operation_task_task ON operation_task (task_id);
