-- task_waits: what suspended tasks wait for, and which of them can wake. Maintenance asks again and again, so no end of a
-- task is missed, and the end of a task pays nothing.

-- name: clear
-- 1 task id
DELETE FROM task_wait
WHERE task_id = ?1

-- name: add
-- 1 task id, 2 ids: carray of 16-byte ids
INSERT INTO task_wait (task_id, child_id)
SELECT DISTINCT ?1, value
FROM carray(?2)

-- name: ended
-- Suspended tasks that are not due and wait for tasks of which none can still run.
-- 1 at, 2 how many at most
SELECT p.task_id
FROM (SELECT DISTINCT task_id FROM task_wait) AS p
CROSS JOIN waiting AS w ON w.task_id = p.task_id
WHERE w.state = 'suspended'
    AND (w.due_at IS NULL OR w.due_at > ?1)
    AND NOT EXISTS (
        SELECT 1
        FROM task_wait AS c
        CROSS JOIN task AS t ON t.id = c.child_id
        WHERE c.task_id = p.task_id
            AND NOT EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = c.child_id)
            AND NOT EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = c.child_id)
    )
LIMIT ?2

-- name: wake
-- A task keeps the distance of its rank from the moment at which it wakes.
-- 1 ids: carray of 16-byte ids, 2 now
UPDATE waiting
SET rank = ?2 + rank - coalesce(due_at, since_at), due_at = ?2
WHERE task_id IN (SELECT value FROM carray(?1))
    AND state = 'suspended'
    AND (due_at IS NULL OR due_at > ?2)
RETURNING task_id

-- name: clear_all
-- 1 ids: carray of 16-byte ids
DELETE FROM task_wait
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: left_behind
-- Whether a task that has ended has rows: it was cancelled, died or went on for another reason.
SELECT 1
FROM task_wait AS w
WHERE EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = w.task_id)
    OR EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = w.task_id)
LIMIT 1

-- name: clear_left_behind
-- 1 how many at most
DELETE FROM task_wait
WHERE (task_id, child_id) IN (
    SELECT w.task_id, w.child_id
    FROM task_wait AS w
    WHERE EXISTS (SELECT 1 FROM archive AS a WHERE a.task_id = w.task_id)
        OR EXISTS (SELECT 1 FROM dead AS d WHERE d.task_id = w.task_id)
    LIMIT ?1
)
