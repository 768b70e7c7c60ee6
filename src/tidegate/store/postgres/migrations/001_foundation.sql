-- 001: foundation: every table and column of the first release, named as in SQLite. The name of this file is the
-- name of the schema's generation: a database whose first migration has another name is refused.
-- Locks: none that matter, because the tables are new.
--
-- A task has one row in `task` for its whole life, and one narrow row in exactly one state table: `ready`, `running`,
-- `waiting`, `archive` or `dead` (or in `enqueue_batch_task` during a large enqueue). A claim deletes from `ready` and
-- inserts into `running`; a task that succeeds at once never has its row in `task` updated.
--
-- Moments (…_at) are double precision seconds since the epoch, UTC: the unit of the store contract. Each driver
-- converts timestamps differently; to_timestamp(…) shows one. Names compare by their bytes (COLLATE "C"), as in SQLite,
-- and twice as fast as by the rules of a language. There are no foreign keys: each locks a row of its parent for each
-- child (MultiXact), and every operation deletes what it owns itself.
--
-- The state tables have few live rows and many dead ones. Autovacuum is set to run for every 1,000 dead rows,
-- independent of the table's size, without pauses. It cleans the indexes each time, and never truncates empty pages at
-- the end, which would block claims.
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

CREATE TABLE /*schema*/task (
    id               uuid PRIMARY KEY,
    function         text COLLATE "C" NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    priority         smallint NOT NULL CHECK (priority BETWEEN 0 AND 2),
    upstream         text COLLATE "C" NOT NULL DEFAULT '',
    tenant           text COLLATE "C" NOT NULL DEFAULT '',
    user_key         text COLLATE "C" NOT NULL DEFAULT '',
    concurrency_key  text COLLATE "C" NOT NULL DEFAULT '',
    route            text COLLATE "C" NOT NULL DEFAULT '',
    parent_id        uuid,
    map_id           uuid,
    map_position     integer,
    idempotency_key  text COLLATE "C",
    unique_name      text COLLATE "C",
    unique_until_final boolean NOT NULL DEFAULT false,
    timeout_seconds  double precision,
    total_timeout_seconds double precision,  -- from the first start; NULL: the function's
    max_attempts     integer,
    deadline_seconds double precision,  -- set by the caller, from enqueue
    deadline_at      double precision,
    labels           jsonb,             -- object of texts, NULL for none
    enqueued_at      double precision NOT NULL,
    -- written only when a run ends without success
    attempts         integer NOT NULL DEFAULT 0,
    parks            integer NOT NULL DEFAULT 0,
    crashes          integer NOT NULL DEFAULT 0,
    losses           integer NOT NULL DEFAULT 0,
    releases         integer NOT NULL DEFAULT 0,
    rule_attempts    text,              -- JSON object {rule: attempts}, NULL for none
    redrives         integer NOT NULL DEFAULT 0,
    redriven_at      double precision,
    first_started_at double precision,
    parked_at        double precision,  -- set while the total timeout is paused
    paused_seconds   double precision NOT NULL DEFAULT 0,
    last_reason      text COLLATE "C",
    last_message     text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE /*schema*/payload (
    task_id   uuid PRIMARY KEY,
    codec_tag text COLLATE "C" NOT NULL,
    args      bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- The main queue. The claim reads it channel by channel: (queue, priority, upstream, function), by rank.
CREATE TABLE /*schema*/ready (
    task_id  uuid PRIMARY KEY,
    queue    text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    upstream text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    user_key text COLLATE "C" NOT NULL DEFAULT '',
    concurrency_key text COLLATE "C" NOT NULL DEFAULT '',
    route    text COLLATE "C" NOT NULL DEFAULT '',
    rank     double precision NOT NULL,
    ready_at double precision NOT NULL,
    run      integer NOT NULL           -- of the last claim; 0 before the first
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1, vacuum_index_cleanup = on, vacuum_truncate = off
);
CREATE INDEX ready_channel ON /*schema*/ready (queue, priority, upstream, function, rank, task_id);
CREATE INDEX ready_upstream ON /*schema*/ready (upstream, queue) WHERE upstream <> '';

CREATE TABLE /*schema*/running (
    task_id             uuid PRIMARY KEY,
    run                 integer NOT NULL,
    worker_id           text COLLATE "C" NOT NULL,
    queue               text COLLATE "C" NOT NULL,
    priority            smallint NOT NULL,
    upstream            text COLLATE "C" NOT NULL,  -- used by this run; for a route, the chosen member
    function            text COLLATE "C" NOT NULL,
    tenant              text COLLATE "C" NOT NULL,
    user_key            text COLLATE "C" NOT NULL DEFAULT '',
    concurrency_key     text COLLATE "C" NOT NULL DEFAULT '',
    route               text COLLATE "C" NOT NULL DEFAULT '',
    ready_at            double precision NOT NULL,
    started_at          double precision NOT NULL,
    -- what maintenance needs without the user's code
    crash_limit         integer NOT NULL,
    crash_base_seconds  double precision NOT NULL,
    crash_max_seconds   double precision NOT NULL,
    unique_name         text COLLATE "C",  -- only if the final state frees it
    cancel_requested_at double precision,
    cancel_forced       boolean NOT NULL DEFAULT false,
    probe               boolean NOT NULL DEFAULT false,  -- the run is a probe
    -- so that finish finds the parent and the map without reading `task`
    parent_id           uuid,
    map_id              uuid,
    -- what the claim reserved from limits on tokens and money, released or settled at the end; NULL for nothing
    reserved_input_tokens  bigint,
    reserved_output_tokens bigint,
    reserved_microdollars  bigint
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1, vacuum_index_cleanup = on, vacuum_truncate = off
);
CREATE INDEX running_worker ON /*schema*/running (worker_id);
CREATE INDEX running_cancel ON /*schema*/running (worker_id) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX running_upstream ON /*schema*/running (upstream) WHERE upstream <> '';

-- Tasks that are scheduled, retrying, held or suspended.
CREATE TABLE /*schema*/waiting (
    task_id  uuid PRIMARY KEY,
    state    text COLLATE "C" NOT NULL CHECK (state IN ('scheduled', 'retrying', 'held', 'suspended')),
    due_at   double precision,          -- as planned, never changed; NULL: does not wait for a moment
    queue    text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    upstream text COLLATE "C" NOT NULL,
    function text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    user_key text COLLATE "C" NOT NULL DEFAULT '',
    concurrency_key text COLLATE "C" NOT NULL DEFAULT '',
    route    text COLLATE "C" NOT NULL DEFAULT '',
    rank     double precision NOT NULL, -- the rank it will have when ready
    run      integer NOT NULL,
    why      text COLLATE "C" NOT NULL DEFAULT '',
    spends   smallint NOT NULL DEFAULT 0,  -- 1: its next run spends the retry budget
    urgent   smallint NOT NULL DEFAULT 0,  -- 1: may use the reserved part of it; 2: the last attempt
    since_at double precision,          -- when it began to wait for a retry
    floor_at double precision,          -- earliest moment that its server allows
    -- If set, `held_until_at` replaces `due_at`: it is later if `held_by` holds the task back, and earlier if a
    -- person ended the wait for its server.
    held_until_at double precision,
    held_by  text COLLATE "C" NOT NULL DEFAULT ''  -- 'gate', 'upstream', 'system'; empty for none
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
CREATE INDEX waiting_due ON /*schema*/waiting (coalesce(held_until_at, due_at)) WHERE due_at IS NOT NULL;
CREATE INDEX waiting_queue ON /*schema*/waiting (queue, state);
CREATE INDEX waiting_state ON /*schema*/waiting (state, task_id);
CREATE INDEX waiting_held ON /*schema*/waiting (held_by, upstream) WHERE held_by <> '';
CREATE INDEX waiting_upstream ON /*schema*/waiting (upstream, since_at) WHERE upstream <> '';

-- Succeeded and cancelled tasks. For a success at the first run, this row is the whole history.
CREATE TABLE /*schema*/archive (
    task_id     uuid PRIMARY KEY,
    state       text COLLATE "C" NOT NULL CHECK (state IN ('succeeded', 'cancelled')),
    run         integer NOT NULL,
    worker_id   text COLLATE "C",
    ready_at    double precision,
    started_at  double precision,       -- NULL: cancelled before any run since its enqueue or redrive
    finished_at double precision NOT NULL,
    upstream    text COLLATE "C"  -- for a route, the member that ran; NULL: the task's own
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX archive_finished ON /*schema*/archive (finished_at);
CREATE INDEX archive_cancelled ON /*schema*/archive (task_id) WHERE state = 'cancelled';

-- Results other than null. A succeeded task without a row here returned None.
CREATE TABLE /*schema*/result (
    task_id   uuid PRIMARY KEY,
    codec_tag text COLLATE "C" NOT NULL,
    data      bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE /*schema*/dead (
    task_id     uuid PRIMARY KEY,
    queue       text COLLATE "C" NOT NULL,
    function    text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    error_class text COLLATE "C" NOT NULL,
    message     text COLLATE "C" NOT NULL,
    run         integer NOT NULL,
    worker_id   text COLLATE "C",
    started_at  double precision,
    failed_at   double precision NOT NULL,
    upstream    text COLLATE "C"  -- for a route, the member that ran last; NULL: the task's own
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX dead_failed ON /*schema*/dead (failed_at);
CREATE INDEX dead_queue ON /*schema*/dead (queue, failed_at);

-- One row for each run that did not succeed.
CREATE TABLE /*schema*/attempt (
    task_id     uuid NOT NULL,
    run         integer NOT NULL,
    worker_id   text COLLATE "C" NOT NULL,
    started_at  double precision NOT NULL,
    ended_at    double precision NOT NULL,
    outcome     text COLLATE "C" NOT NULL CHECK (outcome IN ('retrying', 'released', 'dead', 'cancelled')),
    charge      text COLLATE "C" NOT NULL,
    verdict     text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    error_class text COLLATE "C" NOT NULL,
    message     text COLLATE "C" NOT NULL,
    traceback   text COLLATE "C" NOT NULL,
    status      integer,
    code        text COLLATE "C" NOT NULL,
    request_id  text COLLATE "C" NOT NULL,
    evidence    text COLLATE "C" NOT NULL,
    next_run_at double precision,
    why         text COLLATE "C" NOT NULL,
    upstream    text COLLATE "C",  -- for a route, the member that ran; NULL: the task's own
    PRIMARY KEY (task_id, run)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- What people did to a task: redriven, cancel requested, priority changed, run now.
CREATE TABLE /*schema*/action (
    task_id uuid NOT NULL,
    at      double precision NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    why     text COLLATE "C" NOT NULL,
    PRIMARY KEY (task_id, at, kind)
);

CREATE TABLE /*schema*/progress (
    task_id uuid PRIMARY KEY,
    run     integer NOT NULL,
    at      double precision NOT NULL,
    done    double precision NOT NULL,
    total   double precision,
    note    text COLLATE "C" NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Idempotency keys and unique names. Both stay when the task changes its state, a key also after the task's end.
CREATE TABLE /*schema*/key (
    kind        text COLLATE "C" NOT NULL CHECK (kind IN ('key', 'unique')),
    tenant      text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    task_id     uuid NOT NULL,
    fingerprint bytea NOT NULL,
    expires_at  double precision,       -- NULL: until the task is final
    PRIMARY KEY (kind, tenant, name)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX key_expires ON /*schema*/key (expires_at) WHERE expires_at IS NOT NULL;

-- The worker has the lease, not the task: a heartbeat is one update, independent of the number of tasks. Each page has
-- free space, and no index covers the changed columns, so the update stays in its page (HOT).
CREATE TABLE /*schema*/worker (
    id            text COLLATE "C" PRIMARY KEY,  -- a new UUID for each process start
    name          text COLLATE "C" NOT NULL,
    pool          text COLLATE "C" NOT NULL,
    host          text COLLATE "C" NOT NULL,
    pid           integer NOT NULL,
    queues        text COLLATE "C" NOT NULL,     -- JSON array
    slots         integer NOT NULL,
    version       text COLLATE "C" NOT NULL,
    started_at    double precision NOT NULL,
    heartbeat_at       double precision NOT NULL,
    expires_at    double precision NOT NULL,
    retired_at    double precision,
    retired_why   text COLLATE "C" NOT NULL DEFAULT '',
    lost          boolean NOT NULL DEFAULT false,
    culprit_id    uuid,                          -- the run that caused its end, if known
    culprit_run   integer,
    application   text COLLATE "C" NOT NULL DEFAULT ''  -- the application it runs, which declares its functions
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
    vacuum_truncate = off
);

-- Counters per minute, so that statistics never scan finished tasks.
CREATE TABLE /*schema*/rollup (
    minute       integer NOT NULL,      -- floor(seconds since the epoch / 60)
    queue        text COLLATE "C" NOT NULL,
    function     text COLLATE "C" NOT NULL,
    upstream     text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    enqueued     bigint NOT NULL DEFAULT 0,
    succeeded    bigint NOT NULL DEFAULT 0,
    dead         bigint NOT NULL DEFAULT 0,
    cancelled    bigint NOT NULL DEFAULT 0,
    retried      bigint NOT NULL DEFAULT 0,
    released     bigint NOT NULL DEFAULT 0,
    run_seconds  double precision NOT NULL DEFAULT 0,
    wait_seconds double precision NOT NULL DEFAULT 0,
    first_final_at double precision,  -- when the first task of this minute became final
    -- calls whose responses stated their usage, and that usage in tokens and in millionths of a dollar
    calls        bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cost_microdollars bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (minute, queue, function, upstream, tenant)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX rollup_queue ON /*schema*/rollup (queue, minute);

-- What enqueue and finish add to the roll-up, as appended rows: otherwise writers of one minute and queue would wait
-- for each other's commits, and a caller's open transaction would block all others. Maintenance folds the rows into
-- the roll-up; readers add both tables.
CREATE TABLE /*schema*/tally (
    minute       integer NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    function     text COLLATE "C" NOT NULL,
    upstream     text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    enqueued     bigint NOT NULL DEFAULT 0,
    succeeded    bigint NOT NULL DEFAULT 0,
    dead         bigint NOT NULL DEFAULT 0,
    cancelled    bigint NOT NULL DEFAULT 0,
    retried      bigint NOT NULL DEFAULT 0,
    released     bigint NOT NULL DEFAULT 0,
    run_seconds  double precision NOT NULL DEFAULT 0,
    wait_seconds double precision NOT NULL DEFAULT 0,
    first_final_at double precision,
    -- as in `rollup`; NULL, which takes no space, for none
    calls        bigint,
    input_tokens bigint,
    output_tokens bigint,
    cost_microdollars bigint
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_threshold = -1, vacuum_truncate = off
);

-- Enqueues of more than 5,000 tasks: stored in parts, visible all at once.
CREATE TABLE /*schema*/enqueue_batch (
    id           text COLLATE "C" PRIMARY KEY,
    created_at   double precision NOT NULL,
    committed_at double precision,
    refused_key  text COLLATE "C",      -- set: its commit was refused because of this key,
    refused_for  uuid                   -- which this task holds; stored so that a resend gets it too
);
CREATE TABLE /*schema*/enqueue_batch_task (
    batch_id       text COLLATE "C" NOT NULL,
    position          integer NOT NULL,    -- order within the batch, from 1
    task_id        uuid NOT NULL,
    due_at         double precision,    -- NULL: ready when the batch is committed
    fingerprint    bytea,               -- NULL: no key or unique name to take at the commit
    key_seconds    double precision,
    unique_seconds double precision,
    holder         uuid,                -- set at the commit: this task has the key, the batch's own is deleted
    PRIMARY KEY (batch_id, position)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
CREATE UNIQUE INDEX enqueue_batch_task_id ON /*schema*/enqueue_batch_task (task_id);
CREATE INDEX enqueue_batch_task_keyed ON /*schema*/enqueue_batch_task (batch_id, position) WHERE fingerprint IS NOT NULL;

CREATE TABLE /*schema*/manifest (
    app      text COLLATE "C" PRIMARY KEY,
    body     text COLLATE "C" NOT NULL,  -- JSON object
    saved_at double precision NOT NULL
);

-- One row for each task that ever emitted a chunk: where the chunks of its current run begin and end.
CREATE TABLE /*schema*/stream (
    task_id uuid PRIMARY KEY,
    run     integer NOT NULL,           -- the last run that emitted
    base    bigint NOT NULL,            -- last sequence of the earlier runs
    last    bigint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE /*schema*/chunk (
    task_id  uuid NOT NULL,
    sequence bigint NOT NULL,           -- from 1, rising across all runs
    run      integer NOT NULL,
    at       double precision NOT NULL,
    data     bytea NOT NULL,
    PRIMARY KEY (task_id, sequence)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE /*schema*/token (
    id         text COLLATE "C" PRIMARY KEY,
    digest     bytea NOT NULL UNIQUE,   -- SHA-256; the token itself is not stored
    name       text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C",        -- NULL: all tenants
    created_at double precision NOT NULL,
    expires_at double precision,
    revoked_at double precision
);

CREATE TABLE /*schema*/audit (
    id     uuid PRIMARY KEY,            -- UUIDv7
    at     double precision NOT NULL,
    actor  text COLLATE "C" NOT NULL,
    role   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    action text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    answer text COLLATE "C" NOT NULL,
    why    text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX audit_at ON /*schema*/audit (at);

-- Gates: one row per upstream, per function with a rate limit, and for the whole system. They are updated often and do
-- not grow: free space in each page keeps the update there (HOT).
CREATE TABLE /*schema*/gate (
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('upstream', 'function', 'system')),
    name       text COLLATE "C" NOT NULL,  -- empty for the system
    limits     text COLLATE "C" NOT NULL,  -- JSON of limits.settings.Limits
    state      text COLLATE "C" NOT NULL,  -- JSON of limits.values.Gate
    buckets     text COLLATE "C" NOT NULL,  -- JSON object {window: limits.values.TokenBucket}
    changed_at double precision NOT NULL,
    PRIMARY KEY (kind, name)
) WITH (
    fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);

-- A call to an upstream with max_in_flight that is not counted as a run: outside a task, or during another call of its
-- run. Deleted when the call ends; not counted after it has expired.
CREATE TABLE /*schema*/permit (
    id         text COLLATE "C" PRIMARY KEY,  -- made by the caller
    upstream   text COLLATE "C" NOT NULL,     -- name of the gate, which may be a key's
    expires_at double precision NOT NULL,
    -- the call's task, and what it reserved from limits on tokens and money; NULL for nothing
    task_id    uuid,
    run        integer,
    reserved_input_tokens  bigint,
    reserved_output_tokens bigint,
    reserved_microdollars  bigint
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
CREATE INDEX permit_upstream ON /*schema*/permit (upstream, expires_at);

-- Processes read this when the schema has migrations they do not know. A later migration that breaks older code runs
-- UPDATE /*schema*/compatible SET since = its number. Other migrations leave it alone.
CREATE TABLE /*schema*/compatible (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    since integer NOT NULL               -- the lowest migration a process must know
);
INSERT INTO /*schema*/compatible (since) VALUES (1);

-- One row for each task with a call whose response stated its usage: the sums over all its runs.
CREATE TABLE /*schema*/usage (
    task_id            uuid PRIMARY KEY,
    calls              bigint NOT NULL, -- calls whose responses stated usage
    input_tokens       bigint NOT NULL, -- all input tokens
    cached_tokens      bigint NOT NULL, -- input tokens read from a cache
    cache_write_tokens bigint NOT NULL, -- input tokens written to a cache
    output_tokens      bigint NOT NULL, -- all output tokens
    reasoning_tokens   bigint NOT NULL, -- output tokens used for reasoning
    cost_microdollars  bigint            -- millionths of a dollar; NULL: no price is known
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02);

-- The current time: `at` if a test sets the clock, otherwise this server's clock, which advances also inside a
-- transaction.
CREATE FUNCTION /*schema*/moment(at double precision) RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT coalesce(at, date_part('epoch', clock_timestamp())) $$;

-- The identity of this database. A caller with its own connection states which one it expects.
DO $$
BEGIN
    EXECUTE format(
        'CREATE FUNCTION /*schema*/identity() RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS %L',
        format('SELECT %L::uuid', gen_random_uuid())
    );
END
$$;

-- Take a task's names: its idempotency key, then its unique name. `holder` is NULL if the task has them now, otherwise
-- the task that holds one; `conflict` is true if that is a key with another fingerprint. An expired name is free, and
-- so is a unique name whose task was deleted. An idempotency key outlives the retention of its task, because the work
-- must not be done again. The task's own row must be stored before the names of the next task are taken.
--
-- A name that another task holds is read and not locked: the caller's transaction may stay open for long, and the
-- finish of that task, with the rest of its batch, would wait to free the name.
--
-- A separate statement after the insert checks whether a holder was deleted: the insert may have waited for the
-- holder's commit, and its snapshot is older.
CREATE FUNCTION /*schema*/settle_1(
    now double precision, id uuid, tenant text, fingerprint bytea, key_name text, key_seconds double precision,
    unique_name text, unique_seconds double precision, OUT holder uuid, OUT conflict boolean
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    kind text := CASE WHEN key_name IS NULL THEN 'unique' ELSE 'key' END;
    name text := coalesce(key_name, unique_name);
    held_as bytea;
BEGIN
    conflict := false;
    WHILE name IS NOT NULL LOOP
        INSERT INTO /*schema*/key AS k (kind, tenant, name, task_id, fingerprint, expires_at)
        VALUES (
            kind, tenant, name, id, fingerprint, now + CASE kind WHEN 'key' THEN key_seconds ELSE unique_seconds END
        )
        ON CONFLICT ON CONSTRAINT key_pkey DO NOTHING;
        IF NOT FOUND THEN
            UPDATE /*schema*/key AS k
            SET
                task_id = id,
                fingerprint = fingerprint,
                expires_at = now + CASE kind WHEN 'key' THEN key_seconds ELSE unique_seconds END
            WHERE k.kind = kind
                AND k.tenant = tenant
                AND k.name = name
                AND (k.task_id = id OR k.expires_at <= now);
        END IF;
        IF FOUND THEN
            EXIT WHEN kind = 'unique';
            kind := 'unique';
            name := unique_name;
            CONTINUE;
        END IF;
        SELECT k.task_id, k.fingerprint INTO holder, held_as
        FROM /*schema*/key AS k
        WHERE k.kind = kind
            AND k.tenant = tenant
            AND k.name = name;
        CONTINUE WHEN NOT FOUND;
        IF kind = 'key' THEN
            conflict := held_as <> fingerprint;
            RETURN;
        END IF;
        DELETE FROM /*schema*/key AS k
        WHERE k.kind = kind
            AND k.tenant = tenant
            AND k.name = name
            AND k.task_id = holder
            AND NOT EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = holder);
        IF NOT FOUND THEN
            DELETE FROM /*schema*/key AS k
            WHERE k.kind = 'key'
                AND k.tenant = tenant
                AND k.name = key_name
                AND k.task_id = id;
            RETURN;
        END IF;
        holder := NULL;
    END LOOP;
END
$$;

-- Store one task in the caller's transaction. `answer` is `stored`; `held`: a resend, or the task `holder` has its
-- name; `conflict`: the task `holder` has the key with other arguments; `elsewhere`: this is not the database that the
-- caller expects. Only `stored` means that something was stored.
CREATE FUNCTION /*schema*/enqueue_1(
    expected_schema uuid,                          -- what identity() must return; NULL for any
    at double precision,                -- see moment
    id uuid, function text, queue text, priority smallint, upstream text, tenant text, codec_tag text, args bytea,
    fingerprint bytea, key_name text, key_seconds double precision, unique_name text,
    unique_seconds double precision,    -- NULL: until the task is final
    delay_seconds double precision,
    run_at double precision,            -- overrides the delay
    deadline_seconds double precision, timeout_seconds double precision, max_attempts integer, labels jsonb,
    total_timeout_seconds double precision,
    deadline_at double precision,       -- overrides the seconds
    OUT holder uuid, OUT answer text
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    now CONSTANT double precision := coalesce(at, date_part('epoch', clock_timestamp()));
    due_at CONSTANT double precision := coalesce(run_at, now + delay_seconds);
    is_conflict boolean;
BEGIN
    IF expected_schema <> /*schema*/identity() THEN
        answer := 'elsewhere';
        RETURN;
    END IF;
    IF key_name IS NOT NULL OR unique_name IS NOT NULL THEN
        IF EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = id) AND NOT /*schema*/unsee_1(id) THEN
            holder := id;
            answer := 'held';
            RETURN;
        END IF;
        SELECT s.holder, s.conflict INTO holder, is_conflict
        FROM /*schema*/settle_1(
            now, id, tenant, fingerprint, key_name, key_seconds, unique_name, unique_seconds
        ) AS s;
        IF holder IS NOT NULL THEN
            answer := CASE WHEN is_conflict THEN 'conflict' ELSE 'held' END;
            RETURN;
        END IF;
    END IF;
    holder := id;
    answer := 'stored';
    LOOP
        WITH new AS (
            INSERT INTO /*schema*/task (
                id, function, queue, priority, upstream, tenant, idempotency_key, unique_name, unique_until_final,
                timeout_seconds, max_attempts, deadline_seconds, deadline_at, labels, enqueued_at,
                total_timeout_seconds
            )
            VALUES (
                id, function, queue, priority, upstream, tenant, key_name, unique_name,
                unique_name IS NOT NULL AND unique_seconds IS NULL,
                timeout_seconds, max_attempts, deadline_seconds, coalesce(deadline_at, now + deadline_seconds), labels,
                now, total_timeout_seconds
            )
            ON CONFLICT ON CONSTRAINT task_pkey DO NOTHING
            RETURNING 1
        ),
        carried AS (
            INSERT INTO /*schema*/payload (task_id, codec_tag, args)
            SELECT id, codec_tag, args
            FROM new
        ),
        at_once AS (
            INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
            SELECT id, queue, priority, upstream, function, tenant, now, now, 0
            FROM new
            WHERE due_at <= now
        ),
        later AS (
            INSERT INTO /*schema*/waiting (
                task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run
            )
            SELECT id, 'scheduled', due_at, queue, priority, upstream, function, tenant, due_at, 0
            FROM new
            WHERE due_at > now
        )
        INSERT INTO /*schema*/tally (minute, queue, function, upstream, tenant, enqueued)
        SELECT floor(now / 60), queue, function, upstream, tenant, 1
        FROM new;
        EXIT WHEN FOUND;
        IF NOT /*schema*/unsee_1(id) THEN
            answer := 'held';
            RETURN;
        END IF;
    END LOOP;
END
$$;

-- Delete a task that is only in an uncommitted batch, and so invisible; return whether there was one.
CREATE FUNCTION /*schema*/unsee_1(id uuid) RETURNS boolean
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
BEGIN
    DELETE FROM /*schema*/enqueue_batch_task AS s
    USING /*schema*/enqueue_batch AS c
    WHERE s.task_id = id
        AND c.id = s.batch_id
        AND c.committed_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM /*schema*/payload AS p WHERE p.task_id = id;
    DELETE FROM /*schema*/task AS t WHERE t.id = id;
    RETURN true;
END
$$;
