-- 016: steps: what tasks have done already, so that a re-run does not do (or pay for) it again, and the ledger of doubts.
-- Locks: none that matter, because the tables are new.
-- Older code runs on, and records no steps.

-- One row for each step of a task. `number` rises with the order in which steps were first begun.
CREATE TABLE step (
    number     INTEGER PRIMARY KEY,
    task_id    BLOB NOT NULL,
    key        TEXT NOT NULL,            -- its identity within the task
    name       TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('open', 'done', 'failed', 'rejected')),
    run        INTEGER NOT NULL,         -- that began it last, or whose result it has
    attempt    INTEGER NOT NULL,         -- of that run; 0: a person gave the result
    on_doubt   TEXT NOT NULL CHECK (on_doubt IN ('repeat', 'ask', 'reconcile')),
    arguments  TEXT NOT NULL DEFAULT '', -- fingerprint of what its function was called with; empty: not kept
    tries      INTEGER NOT NULL,         -- how often it was begun, in all runs
    begun_at   REAL NOT NULL,            -- when it was begun last
    ended_at   REAL,
    codec      TEXT NOT NULL DEFAULT '',
    data       BLOB,                     -- its result; NULL: it has none
    upstream   TEXT NOT NULL,
    cause      TEXT NOT NULL DEFAULT '', -- why it failed, or is in doubt
    request_id TEXT NOT NULL DEFAULT '', -- what the provider calls the request in doubt
    doubted    INTEGER NOT NULL DEFAULT 0, -- 1: `doubt` has an entry for this run and attempt
    UNIQUE (task_id, key)
);
CREATE INDEX step_open ON step (task_id, run) WHERE state = 'open' AND doubted = 0;

-- The ledger of doubts: one row for each begun step whose run ended without an answer, and for each that was paid twice.
-- Ids are never used again, because people name entries by them.
CREATE TABLE doubt (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id     BLOB NOT NULL,
    key         TEXT NOT NULL,
    run         INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (
        state IN ('open', 'repeated', 'reconciled', 'answered', 'paid_twice', 'accepted', 'rejected')
    ),
    on_doubt    TEXT NOT NULL CHECK (on_doubt IN ('repeat', 'ask', 'reconcile')),
    cause       TEXT NOT NULL,
    upstream    TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    sent_at     REAL NOT NULL,           -- when the step was begun
    found_at    REAL NOT NULL,
    resolved_at REAL,
    resolved_by TEXT NOT NULL DEFAULT '', -- empty: nobody, it resolved itself
    note        TEXT NOT NULL DEFAULT '',
    UNIQUE (task_id, key, run, attempt)
);
CREATE INDEX doubt_open ON doubt (id) WHERE state = 'open';
