-- 004: permits: calls in flight beside those that runs stand for.
-- Locks: none; a new table. Safe beside workers of the version before: they do not know of it, so until they are
-- gone such calls are not counted by their claims.

-- A call of an upstream with max_in_flight that no run stands for: outside a task, or while another call of its run
-- is under way. Given back when the call ends; counted no more once it has expired.
CREATE TABLE /*schema*/permit (
    id         text COLLATE "C" PRIMARY KEY,  -- made by the caller
    upstream   text COLLATE "C" NOT NULL,     -- name of the gate, which may be that of a key
    expires_at double precision NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off
);
CREATE INDEX permit_upstream ON /*schema*/permit (upstream, expires_at);
