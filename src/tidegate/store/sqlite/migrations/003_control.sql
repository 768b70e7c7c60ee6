-- 003: control: what people want of queues, task functions and workers while they run.
-- Locks: none that matter, because the tables are new. Older code works with this schema, but does not know them: its
-- workers still claim from a paused queue.

-- The paused queues and task functions. Every claim reads it, so a pause moves no task.
CREATE TABLE pause (
    kind      TEXT NOT NULL CHECK (kind IN ('queue', 'function')),
    name      TEXT NOT NULL,
    paused_at REAL NOT NULL,
    paused_by TEXT NOT NULL,
    why       TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- What people want of workers. Each worker reads all rows once a second, applies those that concern it, and reports.
CREATE TABLE control (
    kind       TEXT NOT NULL CHECK (kind IN ('quiet', 'concurrency', 'reload')),
    name       TEXT NOT NULL,  -- quiet: a worker's name or the id of one process; reload: a worker's name, or * for all;
                              -- concurrency: a pool
    value      INTEGER,           -- quiet: 1 or 0; concurrency: tasks at once, NULL for the code's own number
    version    INTEGER NOT NULL,  -- rises with each change of the row
    changed_at REAL NOT NULL,
    changed_by TEXT NOT NULL,
    why        TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE control_report (
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    reporter    TEXT NOT NULL,  -- the id of a pool process; for a reload, the name and host of a worker
    version     INTEGER NOT NULL,  -- of the row that it applied
    reported_at REAL NOT NULL,
    answer      TEXT NOT NULL,  -- `applied`, or what happened
    PRIMARY KEY (kind, name, reporter)
) WITHOUT ROWID;
