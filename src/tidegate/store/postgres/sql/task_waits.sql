-- task_waits: what suspended tasks wait for, and which of them can wake. Maintenance asks again and again, so no end of a
-- task is missed, and the end of a task pays nothing.

-- name: clear
-- 1 task id
DELETE FROM /*schema*/task_wait
WHERE task_id = $1

-- name: add
-- 1 task id, 2 task ids
INSERT INTO /*schema*/task_wait (task_id, child_id)
SELECT DISTINCT $1::uuid, child_id
FROM unnest($2::uuid[]) AS given (child_id)

-- name: ended
-- Suspended tasks that are not due and wait for tasks of which none can still run. The states are read as scalars, which
-- are looked up by index: EXISTS would hash the whole archive.
-- 1 at, 2 how many at most
SELECT p.task_id
FROM (SELECT DISTINCT task_id FROM /*schema*/task_wait) AS p
CROSS JOIN LATERAL (
    SELECT w.task_id
    FROM /*schema*/waiting AS w
    WHERE w.task_id = p.task_id
        AND w.state = 'suspended'
        AND (w.due_at IS NULL OR w.due_at > (SELECT /*schema*/moment($1)))
    LIMIT 1
) AS suspended
WHERE (
    SELECT 1
    FROM /*schema*/task_wait AS c
    WHERE c.task_id = p.task_id
        AND (SELECT 1 FROM /*schema*/archive AS a WHERE a.task_id = c.child_id LIMIT 1) IS NULL
        AND (SELECT 1 FROM /*schema*/dead AS d WHERE d.task_id = c.child_id LIMIT 1) IS NULL
        AND (SELECT 1 FROM /*schema*/task AS t WHERE t.id = c.child_id LIMIT 1) IS NOT NULL
    LIMIT 1
) IS NULL
LIMIT $2

-- name: wake
-- A task keeps the distance of its rank from the moment at which it wakes.
-- 1 task ids, 2 now
UPDATE /*schema*/waiting
SET rank = $2 + rank - coalesce(due_at, since_at), due_at = $2
WHERE task_id = ANY (ARRAY (
    SELECT task_id
    FROM /*schema*/waiting
    WHERE task_id = ANY ($1::uuid[])
        AND state = 'suspended'
        AND (due_at IS NULL OR due_at > $2)
    ORDER BY task_id
    FOR UPDATE SKIP LOCKED
))
RETURNING task_id

-- name: clear_all
-- 1 task ids
DELETE FROM /*schema*/task_wait
WHERE task_id = ANY ($1::uuid[])

-- name: clear_left_behind
-- Remove rows of tasks that have ended: they were cancelled, died or went on for another reason.
-- 1 how many at most
DELETE FROM /*schema*/task_wait
WHERE ctid = ANY (ARRAY (
    SELECT w.ctid
    FROM /*schema*/task_wait AS w
    WHERE (SELECT 1 FROM /*schema*/archive AS a WHERE a.task_id = w.task_id LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM /*schema*/dead AS d WHERE d.task_id = w.task_id LIMIT 1) IS NOT NULL
    LIMIT $1
    FOR UPDATE OF w SKIP LOCKED
))
