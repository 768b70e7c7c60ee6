-- gates: read and write gates as a whole. There are few: one per upstream and per limited function. A
-- transaction that changes a gate locks its row first, and locks several in the order of kind and name.

-- name: all
SELECT kind, name, limits, state, buckets
FROM /*schema*/gate
ORDER BY kind, name

-- name: all_locked
SELECT kind, name, limits, state, buckets
FROM /*schema*/gate
ORDER BY kind, name
FOR UPDATE

-- name: named
-- Arrays: 1 kinds, 2 names
SELECT g.kind, g.name, g.limits, g.state, g.buckets
FROM unnest($1::text[], $2::text[]) AS given (kind, name)
JOIN /*schema*/gate AS g ON g.kind = given.kind AND g.name = given.name
ORDER BY g.kind, g.name

-- name: named_locked
-- Arrays: 1 kinds, 2 names
SELECT g.kind, g.name, g.limits, g.state, g.buckets
FROM unnest($1::text[], $2::text[]) AS given (kind, name)
JOIN /*schema*/gate AS g ON g.kind = given.kind AND g.name = given.name
ORDER BY g.kind, g.name
FOR UPDATE OF g

-- name: one_locked
-- 1 kind, 2 name
SELECT kind, name, limits, state, buckets
FROM /*schema*/gate
WHERE kind = $1
    AND name = $2
FOR UPDATE

-- name: in_flight
-- Current runs of these upstreams, and calls that are not counted as a run.
-- 1 upstreams, 2 now
SELECT
    given.upstream,
    (SELECT count(*) FROM /*schema*/running AS r WHERE r.upstream = given.upstream AND r.upstream <> '')
    + (
        SELECT count(*)
        FROM /*schema*/permit AS p
        WHERE p.upstream = given.upstream
            AND p.expires_at > $2
            AND (
                p.task_id IS NULL
                OR EXISTS (SELECT 1 FROM /*schema*/running AS r WHERE r.task_id = p.task_id AND r.run = p.run)
            )
    )
FROM unnest($1::text[]) AS given (upstream)

-- name: make
-- Create a missing gate, so that its row can be locked.
-- 1 kind, 2 name, 3 limits as JSON, 4 state as JSON, 5 buckets as JSON, 6 now
INSERT INTO /*schema*/gate (kind, name, limits, state, buckets, changed_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (kind, name) DO NOTHING

-- name: save
-- Arrays: 1 kinds, 2 names, 3 limits as JSON, 4 states as JSON, 5 buckets as JSON; 6 now
UPDATE /*schema*/gate AS g
SET
    limits = given.limits,
    state = given.state,
    buckets = given.buckets,
    changed_at = $6
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS given (kind, name, limits, state, buckets)
WHERE g.kind = given.kind
    AND g.name = given.name

-- name: remove
-- 1 kind, 2 name
DELETE FROM /*schema*/gate
WHERE kind = $1
    AND name = $2

-- name: waiting
-- Tasks that wait for each upstream: ready tasks and tasks in the retry queue.
SELECT upstream, 'ready', count(*)
FROM /*schema*/ready
WHERE upstream <> ''
GROUP BY upstream
UNION ALL
SELECT upstream, 'retrying', count(*)
FROM /*schema*/waiting
WHERE upstream <> ''
    AND state = 'retrying'
GROUP BY upstream
