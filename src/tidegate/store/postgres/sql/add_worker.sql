-- add_worker: register a pool process; a repeat changes nothing.

-- name: add
-- 1 at, 2 id, 3 name, 4 pool, 5 host, 6 pid, 7 queues as JSON, 8 slots, 9 version, 10 lease in seconds, 11 application,
-- 12 the set of schedules that it declares, 13 the slots it may grow to or null
INSERT INTO /*schema*/worker (
    id, name, pool, host, pid, queues, slots, version, application, schedule_set, started_at, heartbeat_at, expires_at,
    most_slots
)
SELECT $2, $3, $4, $5, $6, $7, $8, $9, $11, $12, clock.now, clock.now, clock.now + $10, $13
FROM (SELECT /*schema*/moment($1) AS now) AS clock
ON CONFLICT (id) DO NOTHING
