-- 001: foundation: every table and column of the first release. The name of this file is the name of the schema's
-- generation: a database whose first migration has another name is refused.
-- Locks: none that matter, because the tables are new.
--
-- A task has one row in `task` for its whole life, and one narrow row in exactly one state table: `ready`, `running`,
-- `waiting`, `archive` or `dead` (or in `enqueue_batch_task` during a large enqueue). A claim deletes from `ready` and
-- inserts into `running`; a task that succeeds at once never has its row in `task` updated.
-- Moments (…_at) are REAL seconds since the epoch, UTC. Ids are the 16 bytes of a UUIDv7.
--
-- Some columns are reserved and not written yet: a later migration would have to fill them row by row in a large
-- table. A table for a later feature is created by its own migration.
--   user_key, concurrency_key   the user or object a task is for, to limit how many run at once. They are
--                               on `ready`, `running` and `waiting` too, where limits are counted and tasks held
--   route                       the claim chooses the task's upstream among the members of this route;
--                               `running.upstream` is the chosen one, and so is `upstream` of `archive`, `dead` and
--                               `attempt`
--   parent_id                   the task whose run enqueued this one and waits for it
--   map_id, map_position        the map it belongs to, and the index of its item
--   reserved_…                  tokens and money that a run or call has reserved from its upstream's limits
--   cost_microdollars           money in millionths of a dollar; integers add up exactly

CREATE TABLE task (
    id               BLOB PRIMARY KEY,
    function         TEXT NOT NULL,
    queue            TEXT NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 2),
    upstream         TEXT NOT NULL DEFAULT '',
    tenant           TEXT NOT NULL DEFAULT '',
    user_key         TEXT NOT NULL DEFAULT '',
    concurrency_key  TEXT NOT NULL DEFAULT '',
    route            TEXT NOT NULL DEFAULT '',
    parent_id        BLOB,
    map_id           BLOB,
    map_position     INTEGER,
    idempotency_key  TEXT,
    unique_name      TEXT,
    unique_until_final INTEGER NOT NULL DEFAULT 0,
    timeout_seconds  REAL,
    total_timeout_seconds REAL,         -- from the first start; NULL: the function's
    max_attempts     INTEGER,
    deadline_seconds REAL,              -- set by the caller, from enqueue
    deadline_at      REAL,
    labels           TEXT,              -- JSON object, NULL for none
    enqueued_at      REAL NOT NULL,
    -- written only when a run ends without success
    attempts         INTEGER NOT NULL DEFAULT 0,
    parks            INTEGER NOT NULL DEFAULT 0,
    crashes          INTEGER NOT NULL DEFAULT 0,
    losses           INTEGER NOT NULL DEFAULT 0,
    releases         INTEGER NOT NULL DEFAULT 0,
    rule_attempts    TEXT,              -- JSON object {rule: attempts}, NULL for none
    redrives         INTEGER NOT NULL DEFAULT 0,
    redriven_at      REAL,
    first_started_at REAL,
    parked_at        REAL,              -- set while the total timeout is paused
    paused_seconds   REAL NOT NULL DEFAULT 0,
    last_reason      TEXT,
    last_message     TEXT
) WITHOUT ROWID;

CREATE TABLE payload (
    task_id   BLOB PRIMARY KEY,
    codec_tag TEXT NOT NULL,
    args      BLOB NOT NULL
) WITHOUT ROWID;

-- The main queue. The claim reads it channel by channel: (queue, priority, upstream, function), by rank.
CREATE TABLE ready (
    task_id  BLOB PRIMARY KEY,
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    upstream TEXT NOT NULL,
    function TEXT NOT NULL,
    tenant   TEXT NOT NULL,
    user_key TEXT NOT NULL DEFAULT '',
    concurrency_key TEXT NOT NULL DEFAULT '',
    route    TEXT NOT NULL DEFAULT '',
    rank     REAL NOT NULL,
    ready_at REAL NOT NULL,
    run      INTEGER NOT NULL            -- of the last claim; 0 before the first
) WITHOUT ROWID;
CREATE INDEX ready_channel ON ready (queue, priority, upstream, function, rank);
CREATE INDEX ready_upstream ON ready (upstream, queue) WHERE upstream <> '';

CREATE TABLE running (
    task_id             BLOB PRIMARY KEY,
    run                 INTEGER NOT NULL,
    worker_id           TEXT NOT NULL,
    queue               TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    upstream            TEXT NOT NULL,   -- used by this run; for a route, the chosen member
    function            TEXT NOT NULL,
    tenant              TEXT NOT NULL,
    user_key            TEXT NOT NULL DEFAULT '',
    concurrency_key     TEXT NOT NULL DEFAULT '',
    route               TEXT NOT NULL DEFAULT '',
    ready_at            REAL NOT NULL,
    started_at          REAL NOT NULL,
    -- what maintenance needs without the user's code
    crash_limit         INTEGER NOT NULL,
    crash_base_seconds  REAL NOT NULL,
    crash_max_seconds   REAL NOT NULL,
    unique_name         TEXT,            -- only if the final state frees it
    cancel_requested_at REAL,
    cancel_forced       INTEGER NOT NULL DEFAULT 0,
    probe               INTEGER NOT NULL DEFAULT 0,  -- 1: the run is a probe
    -- so that finish finds the parent and the map without reading `task`
    parent_id           BLOB,
    map_id              BLOB,
    -- what the claim reserved from limits on tokens and money, released or settled at the end; NULL for nothing
    reserved_input_tokens  INTEGER,
    reserved_output_tokens INTEGER,
    reserved_microdollars  INTEGER
) WITHOUT ROWID;
CREATE INDEX running_worker ON running (worker_id);
CREATE INDEX running_cancel ON running (worker_id) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX running_upstream ON running (upstream) WHERE upstream <> '';

-- Tasks that are scheduled, retrying, held or suspended.
CREATE TABLE waiting (
    task_id  BLOB PRIMARY KEY,
    state    TEXT NOT NULL CHECK (state IN ('scheduled', 'retrying', 'held', 'suspended')),
    due_at   REAL,                       -- as planned, never changed; NULL: does not wait for a moment
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    upstream TEXT NOT NULL,
    function TEXT NOT NULL,
    tenant   TEXT NOT NULL,
    user_key TEXT NOT NULL DEFAULT '',
    concurrency_key TEXT NOT NULL DEFAULT '',
    route    TEXT NOT NULL DEFAULT '',
    rank     REAL NOT NULL,              -- the rank it will have when ready
    run      INTEGER NOT NULL,
    why      TEXT NOT NULL DEFAULT '',
    spends   INTEGER NOT NULL DEFAULT 0, -- 1: its next run spends the retry budget
    urgent   INTEGER NOT NULL DEFAULT 0, -- 1: may use the reserved part of it; 2: the last attempt
    since_at REAL,                       -- when it began to wait for a retry
    floor_at REAL,                       -- earliest moment that its server allows
    -- If set, `held_until_at` replaces `due_at`: it is later if `held_by` holds the task back, and earlier if a
    -- person ended the wait for its server.
    held_until_at REAL,
    held_by  TEXT NOT NULL DEFAULT ''    -- 'gate', 'upstream', 'system'; empty for none
) WITHOUT ROWID;
CREATE INDEX waiting_due ON waiting (coalesce(held_until_at, due_at)) WHERE due_at IS NOT NULL;
CREATE INDEX waiting_queue ON waiting (queue, state);
CREATE INDEX waiting_state ON waiting (state, task_id);
CREATE INDEX waiting_held ON waiting (held_by, upstream) WHERE held_by <> '';
CREATE INDEX waiting_upstream ON waiting (upstream, since_at) WHERE upstream <> '';

-- Succeeded and cancelled tasks. For a success at the first run, this row is the whole history.
CREATE TABLE archive (
    task_id     BLOB PRIMARY KEY,
    state       TEXT NOT NULL CHECK (state IN ('succeeded', 'cancelled')),
    run         INTEGER NOT NULL,
    worker_id   TEXT,
    ready_at    REAL,
    started_at  REAL,                    -- NULL: cancelled before any run since its enqueue or redrive
    finished_at REAL NOT NULL,
    upstream    TEXT                       -- for a route, the member that ran; NULL: the task's own
) WITHOUT ROWID;
CREATE INDEX archive_finished ON archive (finished_at);
CREATE INDEX archive_cancelled ON archive (task_id) WHERE state = 'cancelled';

-- Results other than null. A succeeded task without a row here returned None.
CREATE TABLE result (
    task_id   BLOB PRIMARY KEY,
    codec_tag TEXT NOT NULL,
    data      BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE dead (
    task_id     BLOB PRIMARY KEY,
    queue       TEXT NOT NULL,
    function    TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    reason      TEXT NOT NULL,
    error_class TEXT NOT NULL,
    message     TEXT NOT NULL,
    run         INTEGER NOT NULL,
    worker_id   TEXT,
    started_at  REAL,
    failed_at   REAL NOT NULL,
    upstream    TEXT                       -- for a route, the member that ran last; NULL: the task's own
) WITHOUT ROWID;
CREATE INDEX dead_failed ON dead (failed_at);
CREATE INDEX dead_queue ON dead (queue, failed_at);

-- One row for each run that did not succeed.
CREATE TABLE attempt (
    task_id     BLOB NOT NULL,
    run         INTEGER NOT NULL,
    worker_id   TEXT NOT NULL,
    started_at  REAL NOT NULL,
    ended_at    REAL NOT NULL,
    outcome     TEXT NOT NULL CHECK (outcome IN ('retrying', 'released', 'dead', 'cancelled')),
    charge      TEXT NOT NULL,
    verdict     TEXT NOT NULL,
    reason      TEXT NOT NULL,
    error_class TEXT NOT NULL,
    message     TEXT NOT NULL,
    traceback   TEXT NOT NULL,
    status      INTEGER,
    code        TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    evidence    TEXT NOT NULL,
    next_run_at REAL,
    why         TEXT NOT NULL,
    upstream    TEXT,                      -- for a route, the member that ran; NULL: the task's own
    PRIMARY KEY (task_id, run)
) WITHOUT ROWID;

-- What people did to a task: redriven, cancel requested, priority changed, run now.
CREATE TABLE action (
    task_id BLOB NOT NULL,
    at      REAL NOT NULL,
    kind    TEXT NOT NULL,
    why     TEXT NOT NULL,
    PRIMARY KEY (task_id, at, kind)
) WITHOUT ROWID;

CREATE TABLE progress (
    task_id BLOB PRIMARY KEY,
    run     INTEGER NOT NULL,
    at      REAL NOT NULL,
    done    REAL NOT NULL,
    total   REAL,
    note    TEXT NOT NULL
) WITHOUT ROWID;

-- Idempotency keys and unique names. Both stay when the task changes its state, a key also after the task's end.
CREATE TABLE key (
    kind        TEXT NOT NULL CHECK (kind IN ('key', 'unique')),
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    task_id     BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    expires_at  REAL,                    -- NULL: until the task is final
    PRIMARY KEY (kind, tenant, name)
) WITHOUT ROWID;
CREATE INDEX key_expires ON key (expires_at) WHERE expires_at IS NOT NULL;

-- The worker has the lease, not the task: a heartbeat is one update, independent of the number of tasks.
CREATE TABLE worker (
    id            TEXT PRIMARY KEY,      -- a new UUID for each process start
    name          TEXT NOT NULL,
    pool          TEXT NOT NULL,
    host          TEXT NOT NULL,
    pid           INTEGER NOT NULL,
    queues        TEXT NOT NULL,         -- JSON array
    slots         INTEGER NOT NULL,
    version       TEXT NOT NULL,
    started_at    REAL NOT NULL,
    heartbeat_at       REAL NOT NULL,
    expires_at    REAL NOT NULL,
    retired_at    REAL,
    retired_why   TEXT NOT NULL DEFAULT '',
    lost          INTEGER NOT NULL DEFAULT 0,
    culprit_id    BLOB,                  -- the run that caused its end, if known
    culprit_run   INTEGER,
    application   TEXT NOT NULL DEFAULT ''  -- the application it runs, which declares its functions
) WITHOUT ROWID;

-- Counters per minute, so that statistics never scan finished tasks.
CREATE TABLE rollup (
    minute       INTEGER NOT NULL,       -- floor(seconds since the epoch / 60)
    queue        TEXT NOT NULL,
    function     TEXT NOT NULL,
    upstream     TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    enqueued     INTEGER NOT NULL DEFAULT 0,
    succeeded    INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    retried      INTEGER NOT NULL DEFAULT 0,
    released     INTEGER NOT NULL DEFAULT 0,
    run_seconds  REAL NOT NULL DEFAULT 0,
    wait_seconds REAL NOT NULL DEFAULT 0,
    first_final_at REAL,  -- when the first task of this minute became final
    -- calls whose responses stated their usage, and that usage in tokens and in millionths of a dollar
    calls        INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cost_microdollars INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (minute, queue, function, upstream, tenant)
) WITHOUT ROWID;
CREATE INDEX rollup_queue ON rollup (queue, minute);

-- Enqueues of more than 5,000 tasks: stored in parts, visible all at once.
CREATE TABLE enqueue_batch (
    id           TEXT PRIMARY KEY,
    created_at   REAL NOT NULL,
    committed_at REAL,
    refused_key  TEXT,                   -- set: its commit was refused because of this key,
    refused_for  BLOB                    -- which this task holds; stored so that a resend gets it too
) WITHOUT ROWID;
CREATE TABLE enqueue_batch_task (
    batch_id       TEXT NOT NULL,
    position          INTEGER NOT NULL,     -- order within the batch, from 1
    task_id        BLOB NOT NULL,
    due_at         REAL,                 -- NULL: ready when the batch is committed
    fingerprint    BLOB,                 -- NULL: no key or unique name to take at the commit
    key_seconds    REAL,
    unique_seconds REAL,
    holder         BLOB,                 -- set at the commit: this task has the key, the batch's own is deleted
    PRIMARY KEY (batch_id, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX enqueue_batch_task_id ON enqueue_batch_task (task_id);
CREATE INDEX enqueue_batch_task_keyed ON enqueue_batch_task (batch_id, position) WHERE fingerprint IS NOT NULL;

CREATE TABLE manifest (
    app      TEXT PRIMARY KEY,
    body     TEXT NOT NULL,              -- JSON object
    saved_at REAL NOT NULL
) WITHOUT ROWID;

-- One row for each task that ever emitted a chunk: where the chunks of its current run begin and end.
CREATE TABLE stream (
    task_id BLOB PRIMARY KEY,
    run     INTEGER NOT NULL,            -- the last run that emitted
    base    INTEGER NOT NULL,            -- last sequence of the earlier runs
    last    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE chunk (
    task_id  BLOB NOT NULL,
    sequence INTEGER NOT NULL,           -- from 1, rising across all runs
    run      INTEGER NOT NULL,
    at       REAL NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (task_id, sequence)
) WITHOUT ROWID;

CREATE TABLE token (
    id         TEXT PRIMARY KEY,
    digest     BLOB NOT NULL UNIQUE,     -- SHA-256; the token itself is not stored
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    tenant     TEXT,                     -- NULL: all tenants
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL
) WITHOUT ROWID;

CREATE TABLE audit (
    id     BLOB PRIMARY KEY,             -- UUIDv7
    at     REAL NOT NULL,
    actor  TEXT NOT NULL,
    role   TEXT NOT NULL,
    tenant TEXT,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    answer TEXT NOT NULL,
    why    TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX audit_at ON audit (at);

-- Gates: one row per upstream, per function with a rate limit, and for the whole system.
CREATE TABLE gate (
    kind       TEXT NOT NULL CHECK (kind IN ('upstream', 'function', 'system')),
    name       TEXT NOT NULL,            -- empty for the system
    limits     TEXT NOT NULL,            -- JSON of limits.settings.Limits
    state      TEXT NOT NULL,            -- JSON of limits.values.Gate
    buckets     TEXT NOT NULL,            -- JSON object {window: limits.values.TokenBucket}
    changed_at REAL NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- A call to an upstream with max_in_flight that is not counted as a run: outside a task, or during another call of its
-- run. Deleted when the call ends; not counted after it has expired.
CREATE TABLE permit (
    id         TEXT PRIMARY KEY,         -- made by the caller
    upstream   TEXT NOT NULL,            -- name of the gate, which may be a key's
    expires_at REAL NOT NULL,
    -- the call's task, and what it reserved from limits on tokens and money; NULL for nothing
    task_id    BLOB,
    run        INTEGER,
    reserved_input_tokens  INTEGER,
    reserved_output_tokens INTEGER,
    reserved_microdollars  INTEGER
) WITHOUT ROWID;
CREATE INDEX permit_upstream ON permit (upstream, expires_at);

-- Processes read this when the schema has migrations they do not know. A later migration that breaks older code runs
-- UPDATE compatible SET since = its number. Other migrations leave it alone.
CREATE TABLE compatible (
    one   INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    since INTEGER NOT NULL               -- the lowest migration a process must know
) WITHOUT ROWID;
INSERT INTO compatible (since) VALUES (1);

-- One row for each task with a call whose response stated its usage: the sums over all its runs.
CREATE TABLE usage (
    task_id            BLOB PRIMARY KEY,
    calls              INTEGER NOT NULL, -- calls whose responses stated usage
    input_tokens       INTEGER NOT NULL, -- all input tokens
    cached_tokens      INTEGER NOT NULL, -- input tokens read from a cache
    cache_write_tokens INTEGER NOT NULL, -- input tokens written to a cache
    output_tokens      INTEGER NOT NULL, -- all output tokens
    reasoning_tokens   INTEGER NOT NULL, -- output tokens used for reasoning
    cost_microdollars  INTEGER            -- millionths of a dollar; NULL: no price is known
) WITHOUT ROWID;
