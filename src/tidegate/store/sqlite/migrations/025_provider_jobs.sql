-- 025: jobs at providers, such as batches and videos, that tasks have submitted and poll.
-- Locks: none that matter, because the tables are new.
-- Older code runs on. It submits no jobs, and cancels a task without cancelling its jobs first.

-- One row for each job that a task waits for. A job that ends unfinished may be submitted again: `generation` counts.
-- `number` rises with the order in which they were begun.
CREATE TABLE provider_job (
    number              INTEGER PRIMARY KEY,
    task_id             BLOB NOT NULL,
    key                 TEXT NOT NULL,    -- its identity within the task, like that of a step
    name                TEXT NOT NULL,
    provider            TEXT NOT NULL,    -- for people; empty if it is not named
    state               TEXT NOT NULL CHECK (
        state IN ('submitting', 'running', 'done', 'failed', 'timed_out', 'cancelled', 'cancel_failed')
    ),
    generation          INTEGER NOT NULL, -- from 1
    job_id              TEXT NOT NULL,    -- what the provider calls it; empty until it is known
    run                 INTEGER NOT NULL, -- that changed its state last
    polls               INTEGER NOT NULL,
    failed_polls        INTEGER NOT NULL, -- since the last good one
    begun_at            REAL NOT NULL,    -- when this generation was begun
    submitted_at        REAL,
    polled_at           REAL,
    next_poll_at        REAL NOT NULL,
    done                REAL,             -- progress that the latest poll reported
    total               REAL,
    note                TEXT NOT NULL,
    error               TEXT NOT NULL,    -- of the latest poll that failed, or why it ended without a result
    can_cancel          INTEGER NOT NULL, -- 1: the task function can cancel it
    cancel_requested_at REAL,
    ended_at            REAL,
    codec               TEXT NOT NULL,
    data                BLOB,             -- its result; NULL: it has none yet, or its items are the result
    UNIQUE (task_id, key)
);

-- One row for each finished item of a job.
CREATE TABLE provider_job_item (
    task_id BLOB NOT NULL,
    key     TEXT NOT NULL,                -- that of the job
    item    TEXT NOT NULL,                -- the name of the item within the job
    codec   TEXT NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (task_id, key, item)
) WITHOUT ROWID;
