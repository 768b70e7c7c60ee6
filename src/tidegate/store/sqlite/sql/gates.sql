-- gates: read and write gates as a whole. There are few: one per upstream and per limited function.

-- name: all
SELECT kind, name, limits, state, buckets
FROM gate
ORDER BY kind, name

-- name: all_locked
-- SQLite has one writer at a time, so no other lock is needed.
SELECT kind, name, limits, state, buckets
FROM gate
ORDER BY kind, name

-- name: any
-- Whether there is a gate that a claim must check, and whether there is a pause. A store without gates and pauses has
-- no further cost.
SELECT
    EXISTS (SELECT 1 FROM gate WHERE kind <> 'system'),
    EXISTS (SELECT 1 FROM pause)

-- name: named
-- 1 kind, 2 name
SELECT kind, name, limits, state, buckets
FROM gate
WHERE kind = ?1
    AND name = ?2

-- name: named_locked
-- 1 kind, 2 name
SELECT kind, name, limits, state, buckets
FROM gate
WHERE kind = ?1
    AND name = ?2

-- name: one_locked
-- 1 kind, 2 name
SELECT kind, name, limits, state, buckets
FROM gate
WHERE kind = ?1
    AND name = ?2

-- name: in_flight
-- Current runs of one upstream, and calls that are not counted as a run. Calls of a run that is over do not count.
-- 1 upstream, 2 now
SELECT
    ?1,
    (SELECT count(*) FROM running WHERE upstream = ?1 AND upstream <> '')
    + (
        SELECT count(*)
        FROM permit AS p
        WHERE p.upstream = ?1
            AND p.expires_at > ?2
            AND (
                p.task_id IS NULL
                OR EXISTS (SELECT 1 FROM running AS r WHERE r.task_id = p.task_id AND r.run = p.run)
            )
    )

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

-- name: remove
-- 1 kind, 2 name
DELETE FROM gate
WHERE kind = ?1
    AND name = ?2

-- name: waiting
-- Tasks that wait for each upstream: ready tasks and tasks in the retry queue.
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
