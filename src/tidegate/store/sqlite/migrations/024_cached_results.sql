-- 024: the content cache: results of steps that other tasks with the same content get, too.
-- Locks: `step`, `tally` and `total_event` for a moment.
-- Older code runs on: its steps neither use the cache nor wait for other tasks.

-- One row for each content that a task has begun to work on: who does the work now, and the last result.
CREATE TABLE cached_result (
    digest        TEXT PRIMARY KEY,       -- of the function, its arguments and, unless it is shared, the tenant
    tenant        TEXT NOT NULL,          -- of the task that did the work
    is_shared     INTEGER NOT NULL,       -- 1: tasks of all tenants get the result
    version       INTEGER NOT NULL,       -- rises with each change
    leader_id     BLOB,                   -- the task that began the work last. It leads as long as its step is open and its run
    leader_run    INTEGER,                -- is the current one
    leader_key    TEXT,
    elected_id    BLOB,                   -- the waiting task that was woken to do the work, because nobody did
    elected_at    REAL,
    task_id       BLOB,                   -- whose result it is
    codec_tag     TEXT NOT NULL DEFAULT '',
    data          BLOB,                   -- NULL: there is none, or it was too large to be kept
    made_at       REAL,                   -- NULL: there is no result
    expires_at    REAL,
    kept_until_at REAL NOT NULL           -- when the row may be deleted
) WITHOUT ROWID;
CREATE INDEX cached_result_kept ON cached_result (kept_until_at);
CREATE INDEX cached_result_task ON cached_result (task_id) WHERE task_id IS NOT NULL;

-- One row for each result that a task has suspended itself for.
CREATE TABLE cache_wait (
    task_id    BLOB NOT NULL,
    digest     TEXT NOT NULL,
    newer_than REAL NOT NULL,             -- a result made after this moment serves
    is_asleep  INTEGER NOT NULL,          -- 0: the task was woken
    PRIMARY KEY (task_id, digest)
) WITHOUT ROWID;
CREATE INDEX cache_wait_asleep ON cache_wait (digest) WHERE is_asleep = 1;

ALTER TABLE step ADD COLUMN cached_from TEXT NOT NULL DEFAULT '';  -- the task whose result it got; empty: it was done itself
ALTER TABLE tally ADD COLUMN cached INTEGER;  -- steps with a cache that ended as `reason` says; NULL, which takes no space: none

-- The kind may also be `cache`: steps with a cache of a queue (`name`) and function: hit, shared, miss.
ALTER TABLE total_event RENAME TO older_total_event;
CREATE TABLE total_event (
    kind     TEXT NOT NULL CHECK (kind IN ('retried', 'dead', 'call', 'lease_expired', 'tick', 'cache')),
    name     TEXT NOT NULL,
    function TEXT NOT NULL,
    reason   TEXT NOT NULL,
    events   INTEGER NOT NULL,
    PRIMARY KEY (kind, name, function, reason)
) WITHOUT ROWID;
INSERT INTO total_event (kind, name, function, reason, events)
SELECT kind, name, function, reason, events
FROM older_total_event;
DROP TABLE older_total_event;
