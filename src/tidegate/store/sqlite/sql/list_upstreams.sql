-- list_upstreams: the gates, read and written whole. There are few of them: one an upstream and limited function.

-- name: all
SELECT kind, name, limits, state, buckets
FROM gate
ORDER BY kind, name

-- name: all_locked
-- The one writer needs no other lock.
SELECT kind, name, limits, state, buckets
FROM gate
ORDER BY kind, name

-- name: any
-- Whether there is any that a claim must mind, so that a store without costs nothing.
SELECT EXISTS (SELECT 1 FROM gate WHERE kind <> 'system')

-- name: one_locked
-- 1 kind, 2 name
SELECT kind, name, limits, state, buckets
FROM gate
WHERE kind = ?1
    AND name = ?2

-- name: in_flight
-- Runs under way of one upstream, and calls that no run stands for.
-- 1 upstream, 2 now
SELECT
    ?1,
    (SELECT count(*) FROM running WHERE upstream = ?1 AND upstream <> '')
    + (SELECT count(*) FROM permit WHERE upstream = ?1 AND expires_at > ?2)

-- name: make
-- 1 kind, 2 name, 3 limits as JSON, 4 state as JSON, 5 buckets as JSON, 6 now
INSERT INTO gate (kind, name, limits, state, buckets, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (kind, name) DO NOTHING

-- name: save
-- 1 kind, 2 name, 3 limits as JSON, 4 state as JSON, 5 buckets as JSON, 6 now
INSERT INTO gate (kind, name, limits, state, buckets, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (kind, name) DO UPDATE
SET
    limits = excluded.limits,
    state = excluded.state,
    buckets = excluded.buckets,
    changed_at = excluded.changed_at

-- name: waiting
-- Tasks that stand before each upstream: ready ones and those in the retry queue.
SELECT upstream, 'ready', count(*)
FROM ready
WHERE upstream <> ''
GROUP BY upstream
UNION ALL
SELECT upstream, 'retrying', count(*)
FROM waiting
WHERE upstream <> ''
    AND state = 'retrying'
GROUP BY upstream
