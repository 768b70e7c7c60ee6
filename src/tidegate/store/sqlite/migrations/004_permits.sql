-- 004: permits: calls in flight beside those that runs stand for.
-- Locks: none to speak of; a new table. Safe beside workers of the version before: they do not know of it, so
-- until they are gone such calls are not counted by their claims.

-- A call of an upstream with max_in_flight that no run stands for: outside a task, or while another call of its run
-- is under way. Given back when the call ends; counted no more once it has expired.
CREATE TABLE permit (
    id         TEXT PRIMARY KEY,         -- made by the caller
    upstream   TEXT NOT NULL,            -- name of the gate, which may be that of a key
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX permit_upstream ON permit (upstream, expires_at);
