-- 024: the content cache: results of steps that other tasks with the same content get, too.
-- Locks: `step`, `tally` and `total_event` for a moment.
-- Older code runs on: its steps neither use the cache nor wait for other tasks.

-- One row for each content that a task has begun to work on: who does the work now, and the last result.
CREATE TABLE /*schema*/cached_result (
    digest        text COLLATE "C" PRIMARY KEY, -- of the function, its arguments and, unless it is shared, the tenant
    tenant        text COLLATE "C" NOT NULL, -- of the task that did the work
    is_shared     smallint NOT NULL,      -- 1: tasks of all tenants get the result
    version       bigint NOT NULL,        -- rises with each change
    leader_id     uuid,                   -- the task that began the work last. It leads as long as its step is open and its run
    leader_run    integer,                -- is the current one
    leader_key    text COLLATE "C",
    elected_id    uuid,                   -- the waiting task that was woken to do the work, because nobody did
    elected_at    double precision,
    task_id       uuid,                   -- whose result it is
    codec_tag     text COLLATE "C" NOT NULL DEFAULT '',
    data          bytea,                  -- NULL: there is none, or it was too large to be kept
    made_at       double precision,       -- NULL: there is no result
    expires_at    double precision,
    kept_until_at double precision NOT NULL -- when the row may be deleted
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX cached_result_kept ON /*schema*/cached_result (kept_until_at);
CREATE INDEX cached_result_task ON /*schema*/cached_result (task_id) WHERE task_id IS NOT NULL;

-- One row for each result that a task has suspended itself for.
CREATE TABLE /*schema*/cache_wait (
    task_id    uuid NOT NULL,
    digest     text COLLATE "C" NOT NULL,
    newer_than double precision NOT NULL, -- a result made after this moment serves
    is_asleep  smallint NOT NULL,         -- 0: the task was woken
    PRIMARY KEY (task_id, digest)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX cache_wait_asleep ON /*schema*/cache_wait (digest) WHERE is_asleep = 1;

ALTER TABLE /*schema*/step ADD COLUMN cached_from text COLLATE "C" NOT NULL DEFAULT '';
-- cached_from: the task whose result it got; empty: it was done itself
ALTER TABLE /*schema*/tally ADD COLUMN cached bigint;
-- cached: steps with a cache that ended as `reason` says; NULL, which takes no space: none

-- The kind may also be `cache`: steps with a cache of a queue (`name`) and function: hit, shared, miss.
ALTER TABLE /*schema*/total_event DROP CONSTRAINT total_event_kind_check;
ALTER TABLE /*schema*/total_event
    ADD CONSTRAINT total_event_kind_check
    CHECK (kind IN ('retried', 'dead', 'call', 'lease_expired', 'tick', 'cache'));
