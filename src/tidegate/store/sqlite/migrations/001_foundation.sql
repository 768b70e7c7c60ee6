-- 001: foundation: every table and column of the first release. The name of this file is the name of the schema's
-- generation: a database whose first migration has another name is refused.
-- Locks: none to speak of, the tables are new.
--
-- A task has one lifelong row in `task` and one narrow row in exactly one of `ready`, `running`,
-- `waiting`, `archive`, `dead` (or in `enqueue_batch_task` while a large enqueue is under way). A claim deletes from
-- `ready` and inserts into `running`; the task's own row is not written on the way to success.
-- Moments (…_at) are REAL seconds since the epoch, UTC. Ids are the 16 bytes of a UUIDv7.
--
-- Some columns are here before anything writes them: on a table that has grown, a later migration would have to
-- fill them in row by row. A table that a later capability needs is made by its own migration; an empty one costs
-- nothing.
--   user_key, concurrency_key   whom or what a task is for inside its tenant: a cap on how many run at once. They are
--                               on `ready`, `running` and `waiting` too, where caps are counted and tasks are held
--   route                       its upstream is chosen at the claim, among the members of this route;
--                               `running.upstream` is the chosen one, and so is `upstream` of `archive`, `dead` and
--                               `attempt`
--   parent_id                   the task whose run enqueued it and waits for it
--   map_id, map_position        the map it is part of, and which of its items
--   reserved_…                  tokens and money that a run or a call has reserved of its upstream's limits
--   cost_microdollars           money, in millionths of a dollar: whole numbers add up exactly

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
    total_timeout_seconds REAL,         -- from the first start; NULL: that of its function
    max_attempts     INTEGER,
    deadline_seconds REAL,              -- as the caller named it, from enqueue
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
    parked_at        REAL,              -- set while the deadline stands still
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
    upstream            TEXT NOT NULL,   -- that this run uses: of a route, the chosen member
    function            TEXT NOT NULL,
    tenant              TEXT NOT NULL,
    user_key            TEXT NOT NULL DEFAULT '',
    concurrency_key     TEXT NOT NULL DEFAULT '',
    route               TEXT NOT NULL DEFAULT '',
    ready_at            REAL NOT NULL,
    started_at          REAL NOT NULL,
    -- what the steward needs without the user's code
    crash_limit         INTEGER NOT NULL,
    crash_base_seconds  REAL NOT NULL,
    crash_max_seconds   REAL NOT NULL,
    unique_name         TEXT,            -- only where it is free again at the final state
    cancel_requested_at REAL,
    cancel_forced       INTEGER NOT NULL DEFAULT 0,
    probe               INTEGER NOT NULL DEFAULT 0,  -- 1: tries whether a held upstream works
    -- so that its end finds the parent and the map without a look at `task`
    parent_id           BLOB,
    map_id              BLOB,
    -- what the claim reserved of limits on tokens and money, given back or settled at the end; NULL for nothing
    reserved_input_tokens  INTEGER,
    reserved_output_tokens INTEGER,
    reserved_microdollars  INTEGER
) WITHOUT ROWID;
CREATE INDEX running_worker ON running (worker_id);
CREATE INDEX running_cancel ON running (worker_id) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX running_upstream ON running (upstream) WHERE upstream <> '';

-- Scheduled, retrying, held, suspended.
CREATE TABLE waiting (
    task_id  BLOB PRIMARY KEY,
    state    TEXT NOT NULL CHECK (state IN ('scheduled', 'retrying', 'held', 'suspended')),
    due_at   REAL,                       -- as planned, never written again; NULL: waits for something else than time
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    upstream TEXT NOT NULL,
    function TEXT NOT NULL,
    tenant   TEXT NOT NULL,
    user_key TEXT NOT NULL DEFAULT '',
    concurrency_key TEXT NOT NULL DEFAULT '',
    route    TEXT NOT NULL DEFAULT '',
    rank     REAL NOT NULL,              -- it will have when ready
    run      INTEGER NOT NULL,
    why      TEXT NOT NULL DEFAULT '',
    spends   INTEGER NOT NULL DEFAULT 0, -- 1: its next run spends the retry budget
    urgent   INTEGER NOT NULL DEFAULT 0, -- 1: may use the reserved part of it; 2: the last attempt
    since_at REAL,                       -- when it began to wait for a retry
    floor_at REAL,                       -- not before this, as its server asked
    -- What was decided about the planned moment since. Set, `held_until_at` counts instead of `due_at`: it is later
    -- where `held_by` keeps the task back, and earlier where a person ended the wait for its server.
    held_until_at REAL,
    held_by  TEXT NOT NULL DEFAULT ''    -- 'gate', 'upstream', 'system'; empty for none
) WITHOUT ROWID;
CREATE INDEX waiting_due ON waiting (coalesce(held_until_at, due_at)) WHERE due_at IS NOT NULL;
CREATE INDEX waiting_queue ON waiting (queue, state);
CREATE INDEX waiting_state ON waiting (state, task_id);
CREATE INDEX waiting_held ON waiting (held_by, upstream) WHERE held_by <> '';
CREATE INDEX waiting_upstream ON waiting (upstream, since_at) WHERE upstream <> '';

-- Succeeded and cancelled. The history of a first-run success is this row alone.
CREATE TABLE archive (
    task_id     BLOB PRIMARY KEY,
    state       TEXT NOT NULL CHECK (state IN ('succeeded', 'cancelled')),
    run         INTEGER NOT NULL,
    worker_id   TEXT,
    ready_at    REAL,
    started_at  REAL,                    -- NULL: cancelled before any run of this life
    finished_at REAL NOT NULL,
    upstream    TEXT                       -- of a route, the member that ran; NULL: the task's own
) WITHOUT ROWID;
CREATE INDEX archive_finished ON archive (finished_at);
CREATE INDEX archive_cancelled ON archive (task_id) WHERE state = 'cancelled';

-- Results other than null; a task without a row here returned None.
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
    upstream    TEXT                       -- of a route, the member that ran last; NULL: the task's own
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
    upstream    TEXT,                      -- of a route, the member that ran; NULL: the task's own
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

-- Idempotency keys and unique names; each outlives its task's moves, an idempotency key also its end.
CREATE TABLE key (
    kind        TEXT NOT NULL CHECK (kind IN ('key', 'unique')),
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    task_id     BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    expires_at  REAL,                    -- NULL: until the final state
    PRIMARY KEY (kind, tenant, name)
) WITHOUT ROWID;
CREATE INDEX key_expires ON key (expires_at) WHERE expires_at IS NOT NULL;

-- The lease is the worker's, not the task's: one update a beat, however many tasks.
CREATE TABLE worker (
    id            TEXT PRIMARY KEY,      -- incarnation: a fresh UUID for each process start
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
    culprit_id    BLOB,                  -- the run that caused its end, where that is known
    culprit_run   INTEGER,
    application   TEXT NOT NULL DEFAULT ''  -- which it runs, so that its functions are known
) WITHOUT ROWID;

-- Counters a minute, so that status, drain, surge and spend never scan what is finished.
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
    first_final_at REAL,  -- of the first task that became final in this minute
    -- calls whose answers stated what they used, and what that was, in tokens and in millionths of a dollar
    calls        INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cost_microdollars INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (minute, queue, function, upstream, tenant)
) WITHOUT ROWID;
CREATE INDEX rollup_queue ON rollup (queue, minute);

-- Enqueues of more than 5,000 tasks: enqueue_batch_task in parts, visible at once.
CREATE TABLE enqueue_batch (
    id           TEXT PRIMARY KEY,
    created_at   REAL NOT NULL,
    committed_at REAL,
    refused_key  TEXT,                   -- set: its commit was refused because of this key,
    refused_for  BLOB                    -- which names this task; kept so that a resend hears it again
) WITHOUT ROWID;
CREATE TABLE enqueue_batch_task (
    batch_id       TEXT NOT NULL,
    position          INTEGER NOT NULL,     -- order within the batch, from 1
    task_id        BLOB NOT NULL,
    due_at         REAL,                 -- NULL: ready when the batch is committed
    fingerprint    BLOB,                 -- NULL: neither key nor unique name to take_names at the commit
    key_seconds    REAL,
    unique_seconds REAL,
    holder         BLOB,                 -- set at the commit: this task has the key, the batchd one is gone
    PRIMARY KEY (batch_id, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX enqueue_batch_task_id ON enqueue_batch_task (task_id);
CREATE INDEX enqueue_batch_task_keyed ON enqueue_batch_task (batch_id, position) WHERE fingerprint IS NOT NULL;

CREATE TABLE manifest (
    app      TEXT PRIMARY KEY,
    body     TEXT NOT NULL,              -- JSON object
    saved_at REAL NOT NULL
) WITHOUT ROWID;

-- One row for each task that ever emitted anything: where its present run's chunks begin and end.
CREATE TABLE stream (
    task_id BLOB PRIMARY KEY,
    run     INTEGER NOT NULL,            -- the last run that emitted
    base    INTEGER NOT NULL,            -- last sequence of the runs before it
    last    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE chunk (
    task_id  BLOB NOT NULL,
    sequence INTEGER NOT NULL,           -- from 1, rising over all runs
    run      INTEGER NOT NULL,
    at       REAL NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (task_id, sequence)
) WITHOUT ROWID;

CREATE TABLE token (
    id         TEXT PRIMARY KEY,
    digest     BLOB NOT NULL UNIQUE,     -- SHA-256; the token itself is nowhere
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

-- What stands before tasks: one row an upstream, a function with a rate limit, and the whole system.
CREATE TABLE gate (
    kind       TEXT NOT NULL CHECK (kind IN ('upstream', 'function', 'system')),
    name       TEXT NOT NULL,            -- empty for the system
    limits     TEXT NOT NULL,            -- JSON of domain.upstream.Limits
    state      TEXT NOT NULL,            -- JSON of domain.upstream.Gate
    buckets     TEXT NOT NULL,            -- JSON object {window: domain.upstream.Meter}
    changed_at REAL NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- A call of an upstream with max_in_flight that no run stands for: outside a task, or while another call of its run
-- is under way. Given back when the call ends; counted no more once it has expired.
CREATE TABLE permit (
    id         TEXT PRIMARY KEY,         -- made by the caller
    upstream   TEXT NOT NULL,            -- name of the gate, which may be that of a key
    expires_at REAL NOT NULL,
    -- whose call it is, and what it reserved of limits on tokens and money; NULL for nothing
    task_id    BLOB,
    run        INTEGER,
    reserved_input_tokens  INTEGER,
    reserved_output_tokens INTEGER,
    reserved_microdollars  INTEGER
) WITHOUT ROWID;
CREATE INDEX permit_upstream ON permit (upstream, expires_at);

-- Read by processes that find migrations they do not know. A later migration that breaks older code says so here:
-- UPDATE compatible SET since = its number. One that only adds what older code need not know leaves it alone.
CREATE TABLE compatible (
    one   INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    since INTEGER NOT NULL               -- the lowest migration a process must know to work here
) WITHOUT ROWID;
INSERT INTO compatible (since) VALUES (1);

-- One row for each task with a call whose answer stated what it used, added up over all its runs.
CREATE TABLE usage (
    task_id            BLOB PRIMARY KEY,
    calls              INTEGER NOT NULL, -- those whose answers stated it
    input_tokens       INTEGER NOT NULL, -- all that was read
    cached_tokens      INTEGER NOT NULL, -- of the input, from a cache
    cache_write_tokens INTEGER NOT NULL, -- of the input, written to a cache
    output_tokens      INTEGER NOT NULL, -- all that was written
    reasoning_tokens   INTEGER NOT NULL, -- of the output, thought rather than said
    cost_microdollars  INTEGER            -- millionths of a dollar; NULL: no price is known
) WITHOUT ROWID;
