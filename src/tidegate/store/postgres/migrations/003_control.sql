-- 003: control: what people want of queues, task functions and workers while they run.
-- Locks: none that matter, because the tables are new. Older code works with this schema, but does not know them: its
-- workers still claim from a paused queue.

-- The paused queues and task functions. Every claim reads it, so a pause moves no task.
CREATE TABLE /*schema*/pause (
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('queue', 'function')),
    name      text COLLATE "C" NOT NULL,
    paused_at double precision NOT NULL,
    paused_by text COLLATE "C" NOT NULL,
    why       text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, name)
);

-- What people want of workers. Each worker reads all rows once a second, applies those that concern it, and reports.
CREATE TABLE /*schema*/control (
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('quiet', 'concurrency', 'reload')),
    name       text COLLATE "C" NOT NULL,  -- quiet: a worker's name or the id of one process; reload: a worker's name, or * for all;
                              -- concurrency: a pool
    value      integer,           -- quiet: 1 or 0; concurrency: tasks at once, NULL for the code's own number
    version    integer NOT NULL,  -- rises with each change of the row
    changed_at double precision NOT NULL,
    changed_by text COLLATE "C" NOT NULL,
    why        text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE /*schema*/control_report (
    kind        text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    reporter    text COLLATE "C" NOT NULL,  -- the id of a pool process; for a reload, the name and host of a worker
    version     integer NOT NULL,  -- of the row that it applied
    reported_at double precision NOT NULL,
    answer      text COLLATE "C" NOT NULL,  -- `applied`, or what happened
    PRIMARY KEY (kind, name, reporter)
);
