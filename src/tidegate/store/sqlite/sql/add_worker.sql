-- add_worker: register a pool process; a repeat changes nothing.

-- name: add
-- 1 id, 2 name, 3 pool, 4 host, 5 pid, 6 queues as JSON, 7 slots, 8 version, 9 application, 10 now,
-- 11 now, 12 moment the lease ends
INSERT INTO worker (
    id, name, pool, host, pid, queues, slots, version, application, started_at, beat_at, expires_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
