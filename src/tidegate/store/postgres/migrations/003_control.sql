-- 003: control: the queues and task functions that people have paused. The claim reads it, so a pause moves no task.
-- Locks: none that matter, because the table is new. Older code works with this schema, but does not know pauses: its
-- workers still claim from a paused queue.

CREATE TABLE /*schema*/pause (
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('queue', 'function')),
    name      text COLLATE "C" NOT NULL,
    paused_at double precision NOT NULL,
    paused_by text COLLATE "C" NOT NULL,
    why       text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, name)
);
