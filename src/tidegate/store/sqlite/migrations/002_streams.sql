-- 002: streams of running tasks, tokens for the HTTP API, and its audit log.
-- Locks: none to speak of, the tables are new.

-- One row for each task that ever emitted anything: where its present run's chunks begin and end.
CREATE TABLE stream (
    task_id BLOB PRIMARY KEY,
    run     INTEGER NOT NULL,            -- the last run that emitted
    base    INTEGER NOT NULL,            -- last sequence of the runs before it
    last    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE chunk (
    task_id  BLOB NOT NULL,
    sequence INTEGER NOT NULL,           -- from 1, rising over all runs
    run      INTEGER NOT NULL,
    at       REAL NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (task_id, sequence)
) WITHOUT ROWID;

CREATE TABLE token (
    id         TEXT PRIMARY KEY,
    digest     BLOB NOT NULL UNIQUE,     -- SHA-256; the token itself is nowhere
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    tenant     TEXT,                     -- NULL: all tenants
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL
) WITHOUT ROWID;

CREATE TABLE audit (
    id     BLOB PRIMARY KEY,             -- UUIDv7
    at     REAL NOT NULL,
    actor  TEXT NOT NULL,
    role   TEXT NOT NULL,
    tenant TEXT,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    answer TEXT NOT NULL,
    why    TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX audit_at ON audit (at);
