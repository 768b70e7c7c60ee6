-- maps: many tasks that were enqueued as one. The items of a map are the tasks with its id in `map_id`, by
-- `map_position`. An item is final when its task is in `archive` or `dead`; a task that was deleted since is counted in
-- `map_deleted`. Each state is looked up by the id of its task (LATERAL … LIMIT, and sub-selects): else the planner reads
-- whole tables of finished tasks.

-- shared: ends
-- How the item `t` ended: `a` if it is archived, `d` if it is a dead letter.
LEFT JOIN LATERAL (
    SELECT x.task_id, x.state, x.finished_at
    FROM /*schema*/archive AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS a ON true
LEFT JOIN LATERAL (
    SELECT x.task_id, x.reason, x.error_class, x.message, x.failed_at
    FROM /*schema*/dead AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS d ON true

-- name: add
-- Returns a row unless the map exists, or another map of the tenant has its key.
-- 1 id, 2 name, 3 function, 4 tenant, 5 key or NULL, 6 fingerprint, 7 how many items, 8 most failures or NULL,
-- 9 final hook as JSON or NULL, 10 now
INSERT INTO /*schema*/map (id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT DO NOTHING
RETURNING id

-- name: one
-- 1 id
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM /*schema*/map
WHERE id = $1

-- name: by_key
-- 1 tenant, 2 key
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM /*schema*/map
WHERE tenant = $1
    AND key = $2

-- name: page
-- The latest first.
-- 1 tenant or NULL for all, 2 id after which to continue or NULL to start, 3 how many at most
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM /*schema*/map
WHERE ($1::text IS NULL OR tenant = $1)
    AND ($2::uuid IS NULL OR id < $2)
ORDER BY id DESC
LIMIT $3

-- name: open
-- Those with an item that was not seen final yet.
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM /*schema*/map
WHERE ended_at IS NULL
ORDER BY id

-- name: ids
-- 1 smallest id, 2 largest id, 3 tenant or NULL for all
SELECT id
FROM /*schema*/map
WHERE id BETWEEN $1 AND $2
    AND ($3::text IS NULL OR tenant = $3)
ORDER BY id
LIMIT 2

-- name: count
-- How many items are stored, succeeded, dead, cancelled, running, and ended since a moment.
-- 1 id, 2 the moment
SELECT
    count(*), count(*) FILTER (WHERE a.state = 'succeeded'), count(d.task_id),
    count(*) FILTER (WHERE a.state = 'cancelled'),
    count(r.task_id), count(*) FILTER (WHERE coalesce(a.finished_at, d.failed_at) > $2)
FROM /*schema*/task AS t
/*ends*/
LEFT JOIN LATERAL (
    SELECT x.task_id
    FROM /*schema*/running AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS r ON true
WHERE t.map_id = $1

-- name: deleted
-- 1 id
SELECT state, items
FROM /*schema*/map_deleted
WHERE map_id = $1

-- name: first_open
-- The first item from a position on that is not final.
-- 1 id, 2 position
SELECT t.map_position
FROM /*schema*/task AS t
WHERE t.map_id = $1
    AND t.map_position >= $2
    AND (SELECT true FROM /*schema*/archive AS a WHERE a.task_id = t.id LIMIT 1) IS NULL
    AND (SELECT true FROM /*schema*/dead AS d WHERE d.task_id = t.id LIMIT 1) IS NULL
ORDER BY t.map_position
LIMIT 1

-- name: dead_items
-- How many items are dead. It reads the dead letters of the map's function and time, not the items.
-- 1 id
SELECT count(*)
FROM /*schema*/map AS m
CROSS JOIN /*schema*/dead AS d
CROSS JOIN LATERAL (
    SELECT x.id, x.map_id
    FROM /*schema*/task AS x
    WHERE x.id = d.task_id
    LIMIT 1
) AS t
WHERE m.id = $1
    AND d.failed_at >= m.created_at
    AND d.function = m.function
    AND t.map_id = m.id

-- name: cancellable
-- Items that can be cancelled: neither final nor asked to stop.
-- 1 id, 2 position after which to continue, 3 how many at most
SELECT t.map_position, t.id
FROM /*schema*/task AS t
WHERE t.map_id = $1
    AND t.map_position > $2
    AND (SELECT true FROM /*schema*/archive AS a WHERE a.task_id = t.id LIMIT 1) IS NULL
    AND (SELECT true FROM /*schema*/dead AS d WHERE d.task_id = t.id LIMIT 1) IS NULL
    AND (
        SELECT true
        FROM /*schema*/running AS r
        WHERE r.task_id = t.id AND r.cancel_requested_at IS NOT NULL
        LIMIT 1
    ) IS NULL
ORDER BY t.map_position
LIMIT $3

-- name: items
-- A page of the items, with their states.
-- 1 id, 2 position after which to continue, 3 how many at most
SELECT
    t.map_position, t.id,
    CASE
        WHEN a.task_id IS NOT NULL THEN a.state
        WHEN d.task_id IS NOT NULL THEN 'dead'
        WHEN n.task_id IS NOT NULL THEN 'running'
        WHEN w.task_id IS NOT NULL THEN w.state
        WHEN s.due_at IS NOT NULL THEN 'scheduled'
        ELSE 'ready'
    END,
    coalesce(d.reason, '')
FROM /*schema*/task AS t
/*ends*/
LEFT JOIN LATERAL (
    SELECT x.task_id
    FROM /*schema*/running AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS n ON true
LEFT JOIN LATERAL (
    SELECT x.task_id, x.state
    FROM /*schema*/waiting AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS w ON true
LEFT JOIN LATERAL (
    SELECT x.due_at
    FROM /*schema*/enqueue_batch_task AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS s ON true
WHERE t.map_id = $1
    AND t.map_position > $2
ORDER BY t.map_position
LIMIT $3

-- name: results
-- Those of these items that are final, with their results.
-- 1 ids: array of uuid
SELECT
    t.id, coalesce(a.state, 'dead'), p.data, p.codec_tag, coalesce(d.reason, ''), coalesce(d.error_class, ''),
    coalesce(d.message, '')
FROM unnest($1::uuid[]) AS given (value)
CROSS JOIN LATERAL (
    SELECT x.id, x.map_id
    FROM /*schema*/task AS x
    WHERE x.id = given.value
    LIMIT 1
) AS t
/*ends*/
LEFT JOIN LATERAL (
    SELECT x.data, x.codec_tag
    FROM /*schema*/result AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS p ON true
WHERE a.task_id IS NOT NULL
    OR d.task_id IS NOT NULL

-- name: dead_letters
-- A page of the items that are dead.
-- 1 id, 2 position after which to continue, 3 how many at most
SELECT t.map_position, t.id, d.reason
FROM /*schema*/task AS t
CROSS JOIN LATERAL (
    SELECT x.task_id, x.reason, x.error_class, x.message, x.failed_at
    FROM /*schema*/dead AS x
    WHERE x.task_id = t.id
    LIMIT 1
) AS d
WHERE t.map_id = $1
    AND t.map_position > $2
ORDER BY t.map_position
LIMIT $3

-- name: move_cursor
-- 1 id, 2 position
UPDATE /*schema*/map
SET cursor = $2
WHERE id = $1

-- name: cancel
-- Returns a row unless it has ended or is being cancelled.
-- 1 id, 2 why, 3 now
UPDATE /*schema*/map
SET cancelled_at = $3, cancel_why = $2
WHERE id = $1
    AND ended_at IS NULL
    AND cancelled_at IS NULL
RETURNING id

-- name: end
-- Returns a row unless it has ended.
-- 1 id, 2 succeeded, 3 dead, 4 cancelled, 5 id of the task that follows or NULL, 6 now
UPDATE /*schema*/map
SET ended_at = $6, succeeded = $2, dead = $3, cancelled = $4, callback_id = $5
WHERE id = $1
    AND ended_at IS NULL
RETURNING id

-- name: keep_counts
-- Count the final items among these tasks, which are about to be deleted.
-- 1 ids: array of uuid
INSERT INTO /*schema*/map_deleted AS m0 (map_id, state, items)
SELECT t.map_id, coalesce(a.state, 'dead'), count(*)
FROM unnest($1::uuid[]) AS given (value)
CROSS JOIN LATERAL (
    SELECT x.id, x.map_id
    FROM /*schema*/task AS x
    WHERE x.id = given.value
    LIMIT 1
) AS t
CROSS JOIN LATERAL (
    SELECT x.id
    FROM /*schema*/map AS x
    WHERE x.id = t.map_id
    LIMIT 1
) AS m
/*ends*/
WHERE t.map_id IS NOT NULL
    AND (a.task_id IS NOT NULL OR d.task_id IS NOT NULL)
GROUP BY t.map_id, coalesce(a.state, 'dead')
ORDER BY 1, 2
ON CONFLICT (map_id, state) DO UPDATE
SET items = m0.items + excluded.items

-- name: old
-- Maps that ended before a moment and have no task any more.
-- 1 the moment, 2 how many at most
SELECT m.id
FROM /*schema*/map AS m
WHERE m.ended_at < $1
    AND (SELECT true FROM /*schema*/task AS t WHERE t.map_id = m.id LIMIT 1) IS NULL
ORDER BY m.ended_at
LIMIT $2

-- name: delete_counts
-- 1 ids: array of uuid
DELETE FROM /*schema*/map_deleted
WHERE map_id = ANY ($1::uuid[])

-- name: delete
-- 1 ids: array of uuid
DELETE FROM /*schema*/map
WHERE id = ANY ($1::uuid[])
