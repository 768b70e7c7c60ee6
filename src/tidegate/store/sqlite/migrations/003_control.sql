-- 003: control: the queues and task functions that people have paused. The claim reads it, so a pause moves no task.
-- Locks: none that matter, because the table is new. Older code works with this schema, but does not know pauses: its
-- workers still claim from a paused queue.

CREATE TABLE pause (
    kind      TEXT NOT NULL CHECK (kind IN ('queue', 'function')),
    name      TEXT NOT NULL,
    paused_at REAL NOT NULL,
    paused_by TEXT NOT NULL,
    why       TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
