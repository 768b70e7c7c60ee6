-- next_due: find the next moment at which maintenance has something to do. Tests that have their own clock jump to this
-- moment.

-- name: due
-- The moment at which the first waiting task is due.
SELECT coalesce(held_until_at, due_at)
FROM waiting
WHERE due_at IS NOT NULL
    AND +state IN ('scheduled', 'retrying', 'suspended')
ORDER BY coalesce(held_until_at, due_at)
LIMIT 1

-- name: expiry
-- The moment at which the first row expires.
-- 1 seconds that finished tasks are kept, 2 seconds that dead letters are kept
SELECT min(at)
FROM (
    SELECT min(finished_at) + ?1 AS at FROM archive
    UNION ALL
    SELECT min(failed_at) + ?2 FROM dead
    UNION ALL
    SELECT min(expires_at) FROM key WHERE expires_at IS NOT NULL
    UNION ALL
    SELECT min(expires_at) FROM event
    UNION ALL
    SELECT min(kept_until_at) FROM cached_result
)

-- name: tick
-- The first tick of a schedule after a moment.
-- 1 moment
SELECT min(next_at)
FROM schedule
WHERE next_at > ?1

-- name: overdue
-- Schedules whose next tick has passed.
-- 1 moment
SELECT name, rule
FROM schedule
WHERE next_at <= ?1

-- name: move
-- 1 name, 2 its next tick or NULL
UPDATE schedule
SET next_at = ?2, revision = revision + 1
WHERE name = ?1

-- name: ready
-- Whether the main queue has any task.
SELECT EXISTS (SELECT 1 FROM ready)
