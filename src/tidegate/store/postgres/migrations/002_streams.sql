-- 002: streams of running tasks, tokens for the HTTP API, and its audit log.
-- Locks: none to speak of, the tables are new.

-- One row for each task that ever emitted anything: where its present run's chunks begin and end.
CREATE TABLE /*schema*/stream (
    task_id uuid PRIMARY KEY,
    run     integer NOT NULL,           -- the last run that emitted
    base    bigint NOT NULL,            -- last sequence of the runs before it
    last    bigint NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE /*schema*/chunk (
    task_id  uuid NOT NULL,
    sequence bigint NOT NULL,           -- from 1, rising over all runs
    run      integer NOT NULL,
    at       double precision NOT NULL,
    data     bytea NOT NULL,
    PRIMARY KEY (task_id, sequence)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE /*schema*/token (
    id         text COLLATE "C" PRIMARY KEY,
    digest     bytea NOT NULL UNIQUE,   -- SHA-256; the token itself is nowhere
    name       text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C",        -- NULL: all tenants
    created_at double precision NOT NULL,
    expires_at double precision,
    revoked_at double precision
);

CREATE TABLE /*schema*/audit (
    id     uuid PRIMARY KEY,            -- UUIDv7
    at     double precision NOT NULL,
    actor  text COLLATE "C" NOT NULL,
    role   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C",
    action text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    answer text COLLATE "C" NOT NULL,
    why    text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX audit_at ON /*schema*/audit (at);
