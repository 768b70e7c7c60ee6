-- 013: operations: what people do to many tasks at once, and the letters of each redrive, so that maintenance can send
-- them little by little and a person can follow, stop and undo it.
-- Locks: none that matter, because the tables are new. Older code runs on: it does not advance operations.

CREATE TABLE /*schema*/operation (
    id         text COLLATE "C" PRIMARY KEY,  -- a UUIDv7
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('redrive', 'purge')),
    state      text COLLATE "C" NOT NULL CHECK (state IN (
        'choosing', 'canary', 'feeding', 'purging', 'undoing', 'done', 'stopped', 'aborted', 'undone'
    )),
    started_by text NOT NULL,
    tenant     text COLLATE "C",              -- whose letters it may touch; NULL: those of all tenants
    filter     text NOT NULL,                 -- JSON of store.rows.TaskFilter; empty: it has a list of ids
    settings   text NOT NULL,                 -- JSON of store.operation_rows.RedriveSettings
    preview    integer NOT NULL,              -- letters that matched when a person started it
    chosen     integer NOT NULL DEFAULT 0,
    sent       integer NOT NULL DEFAULT 0,    -- to the main queue, or purged
    succeeded  integer NOT NULL DEFAULT 0,
    died       integer NOT NULL DEFAULT 0,
    cancelled  integer NOT NULL DEFAULT 0,    -- or deleted
    skipped    integer NOT NULL DEFAULT 0,
    undone     integer NOT NULL DEFAULT 0,
    cursor     uuid,                          -- the last letter that the filter chose
    canary     integer NOT NULL DEFAULT 0,    -- how many letters the canary has
    canary_at  double precision,              -- when the first of them was sent
    note       text NOT NULL DEFAULT '',      -- what it waits for, or why it ended
    started_at double precision NOT NULL,
    changed_at double precision NOT NULL,
    ended_at   double precision,
    revision   bigint NOT NULL DEFAULT 0      -- +1 at each step: a step planned before does nothing
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1, vacuum_index_cleanup = on, vacuum_truncate = off
);
-- The operations that maintenance must look at.
CREATE INDEX operation_open ON /*schema*/operation (id)
WHERE ended_at IS NULL OR sent > succeeded + died + cancelled + undone;
CREATE INDEX operation_started ON /*schema*/operation (started_at);
CREATE INDEX operation_ended ON /*schema*/operation (ended_at) WHERE ended_at IS NOT NULL;

-- One row for each letter of a redrive. It stays when its task is deleted, and has its own retention.
CREATE TABLE /*schema*/operation_task (
    operation_id text COLLATE "C" NOT NULL,
    task_id    uuid NOT NULL,
    state      text COLLATE "C" NOT NULL CHECK (state IN (
        'chosen', 'sent', 'succeeded', 'died', 'cancelled', 'skipped', 'undone'
    )),
    queue      text COLLATE "C" NOT NULL,     -- to which it is sent
    upstream   text COLLATE "C" NOT NULL,
    function   text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    run        integer NOT NULL,              -- that died; a later run is one of the redrive
    lot        integer NOT NULL,              -- random: the order in which letters are sent
    in_canary  smallint NOT NULL DEFAULT 0,
    sent_at    double precision,
    first_try  text COLLATE "C" NOT NULL DEFAULT '' CHECK (first_try IN ('', 'succeeded', 'failed')),
    first_at   double precision,              -- when its first attempt was found to have ended
    why        text NOT NULL DEFAULT '',      -- why it was skipped, or of what it died again
    was        text,                          -- JSON of its counters and failure before, while it can be undone
    args       bytea,                         -- its arguments before, if they were changed
    codec_tag  text,
    PRIMARY KEY (operation_id, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX operation_task_next ON /*schema*/operation_task (
    operation_id, state, queue, upstream, function, in_canary, lot
);
CREATE INDEX operation_task_canary ON /*schema*/operation_task (operation_id) WHERE in_canary = 1;
CREATE INDEX operation_task_first ON /*schema*/operation_task (operation_id, first_at) WHERE first_at IS NOT NULL;
CREATE INDEX operation_task_task ON /*schema*/operation_task (task_id);
