-- maps: many tasks that were enqueued as one. The items of a map are the tasks with its id in `map_id`, by
-- `map_position`. An item is final when its task is in `archive` or `dead`; a task that was deleted since is counted in
-- `map_deleted`.

-- name: add
-- Returns a row unless the map exists, or another map of the tenant has its key.
-- 1 id, 2 name, 3 function, 4 tenant, 5 key or NULL, 6 fingerprint, 7 how many items, 8 most failures or NULL,
-- 9 final hook as JSON or NULL, 10 now
INSERT INTO map (id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT DO NOTHING
RETURNING id

-- name: one
-- 1 id
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM map
WHERE id = ?1

-- name: by_key
-- 1 tenant, 2 key
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM map
WHERE tenant = ?1
    AND key = ?2

-- name: page
-- The latest first.
-- 1 tenant or NULL for all, 2 id after which to continue or NULL to start, 3 how many at most
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM map
WHERE (?1 IS NULL OR tenant = ?1)
    AND (?2 IS NULL OR id < ?2)
ORDER BY id DESC
LIMIT ?3

-- name: open
-- Those with an item that was not seen final yet.
SELECT
    id, name, function, tenant, key, fingerprint, items, max_failures, on_complete, created_at, cursor, cancelled_at,
    cancel_why, ended_at, succeeded, dead, cancelled, callback_id
FROM map
WHERE ended_at IS NULL
ORDER BY id

-- name: ids
-- 1 smallest id, 2 largest id, 3 tenant or NULL for all
SELECT id
FROM map
WHERE id BETWEEN ?1 AND ?2
    AND (?3 IS NULL OR tenant = ?3)
ORDER BY id
LIMIT 2

-- name: count
-- How many items are stored, succeeded, dead, cancelled, running, and ended since a moment.
-- 1 id, 2 the moment
SELECT
    count(*), sum(coalesce(a.state = 'succeeded', 0)), count(d.task_id), sum(coalesce(a.state = 'cancelled', 0)),
    count(r.task_id), sum(coalesce(coalesce(a.finished_at, d.failed_at) > ?2, 0))
FROM task AS t
LEFT JOIN archive AS a ON a.task_id = t.id
LEFT JOIN dead AS d ON d.task_id = t.id
LEFT JOIN running AS r ON r.task_id = t.id
WHERE t.map_id = ?1

-- name: deleted
-- 1 id
SELECT state, items
FROM map_deleted
WHERE map_id = ?1

-- name: first_open
-- The first item from a position on that is not final.
-- 1 id, 2 position
SELECT t.map_position
FROM task AS t
WHERE t.map_id = ?1
    AND t.map_position >= ?2
    AND NOT EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = t.id)
ORDER BY t.map_position
LIMIT 1

-- name: dead_items
-- How many items are dead. It reads the dead letters of the map's function and time, not the items.
-- 1 id
SELECT count(*)
FROM map AS m
CROSS JOIN dead AS d
CROSS JOIN task AS t ON t.id = d.task_id
WHERE m.id = ?1
    AND d.failed_at >= m.created_at
    AND d.function = m.function
    AND t.map_id = m.id

-- name: cancellable
-- Items that can be cancelled: neither final nor asked to stop.
-- 1 id, 2 position after which to continue, 3 how many at most
SELECT t.map_position, t.id
FROM task AS t
WHERE t.map_id = ?1
    AND t.map_position > ?2
    AND NOT EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM running AS r WHERE r.task_id = t.id AND r.cancel_requested_at IS NOT NULL)
ORDER BY t.map_position
LIMIT ?3

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
FROM task AS t
LEFT JOIN archive AS a ON a.task_id = t.id
LEFT JOIN dead AS d ON d.task_id = t.id
LEFT JOIN running AS n ON n.task_id = t.id
LEFT JOIN waiting AS w ON w.task_id = t.id
LEFT JOIN enqueue_batch_task AS s ON s.task_id = t.id
WHERE t.map_id = ?1
    AND t.map_position > ?2
ORDER BY t.map_position
LIMIT ?3

-- name: results
-- Those of these items that are final, with their results.
-- 1 ids: carray of 16-byte ids
SELECT
    t.id, coalesce(a.state, 'dead'), p.data, p.codec_tag, coalesce(d.reason, ''), coalesce(d.error_class, ''),
    coalesce(d.message, '')
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value
LEFT JOIN archive AS a ON a.task_id = t.id
LEFT JOIN dead AS d ON d.task_id = t.id
LEFT JOIN result AS p ON p.task_id = t.id
WHERE a.task_id IS NOT NULL
    OR d.task_id IS NOT NULL

-- name: dead_letters
-- A page of the items that are dead.
-- 1 id, 2 position after which to continue, 3 how many at most
SELECT t.map_position, t.id, d.reason
FROM task AS t
CROSS JOIN dead AS d ON d.task_id = t.id
WHERE t.map_id = ?1
    AND t.map_position > ?2
ORDER BY t.map_position
LIMIT ?3

-- name: move_cursor
-- 1 id, 2 position
UPDATE map
SET cursor = ?2
WHERE id = ?1

-- name: cancel
-- Returns a row unless it has ended or is being cancelled.
-- 1 id, 2 why, 3 now
UPDATE map
SET cancelled_at = ?3, cancel_why = ?2
WHERE id = ?1
    AND ended_at IS NULL
    AND cancelled_at IS NULL
RETURNING id

-- name: end
-- Returns a row unless it has ended.
-- 1 id, 2 succeeded, 3 dead, 4 cancelled, 5 id of the task that follows or NULL, 6 now
UPDATE map
SET ended_at = ?6, succeeded = ?2, dead = ?3, cancelled = ?4, callback_id = ?5
WHERE id = ?1
    AND ended_at IS NULL
RETURNING id

-- name: keep_counts
-- Count the final items among these tasks, which are about to be deleted.
-- 1 ids: carray of 16-byte ids
INSERT INTO map_deleted (map_id, state, items)
SELECT t.map_id, coalesce(a.state, 'dead'), count(*)
FROM carray(?1) AS given
CROSS JOIN task AS t ON t.id = given.value
CROSS JOIN map AS m ON m.id = t.map_id
LEFT JOIN archive AS a ON a.task_id = t.id
LEFT JOIN dead AS d ON d.task_id = t.id
WHERE t.map_id IS NOT NULL
    AND (a.task_id IS NOT NULL OR d.task_id IS NOT NULL)
GROUP BY t.map_id, coalesce(a.state, 'dead')
ORDER BY 1, 2
ON CONFLICT (map_id, state) DO UPDATE
SET items = map_deleted.items + excluded.items

-- name: old
-- Maps that ended before a moment and have no task any more.
-- 1 the moment, 2 how many at most
SELECT m.id
FROM map AS m
WHERE m.ended_at < ?1
    AND NOT EXISTS (SELECT 1 FROM task AS t WHERE t.map_id = m.id)
ORDER BY m.ended_at
LIMIT ?2

-- name: delete_counts
-- 1 ids: carray of 16-byte ids
DELETE FROM map_deleted
WHERE map_id IN (SELECT value FROM carray(?1))

-- name: delete
-- 1 ids: carray of 16-byte ids
DELETE FROM map
WHERE id IN (SELECT value FROM carray(?1))
