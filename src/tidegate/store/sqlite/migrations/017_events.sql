-- 017: events: facts that the application sends, and the tasks that wait for them.
-- Locks: none that matter, because the tables are new.
-- Older code runs on. It can neither send events nor wait for them, and wakes no task for them.

-- Events that were sent lately. An event stays until it expires, for tasks that begin to wait for it later.
CREATE TABLE event (
    id         BLOB PRIMARY KEY,         -- made by the sender, who may send it again
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    codec_tag  TEXT NOT NULL,
    data       BLOB NOT NULL,
    at         REAL NOT NULL,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX event_name ON event (tenant, name, at);
CREATE INDEX event_expires ON event (expires_at);

-- One row for each wait for an event that a task has begun. `number` rises with the order in which they were begun.
CREATE TABLE event_wait (
    number      INTEGER PRIMARY KEY,
    task_id     BLOB NOT NULL,
    key         TEXT NOT NULL,            -- its identity within the task, like that of a step
    tenant      TEXT NOT NULL,
    name        TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('open', 'received', 'timed_out')),
    since_at    REAL NOT NULL,
    deadline_at REAL,                     -- when it times out; NULL: never
    event_id    BLOB,                     -- the event that it received. Its data is copied: the event may expire
    codec_tag   TEXT NOT NULL DEFAULT '',
    data        BLOB,
    UNIQUE (task_id, key)
);
CREATE INDEX event_wait_open ON event_wait (tenant, name) WHERE state = 'open';
