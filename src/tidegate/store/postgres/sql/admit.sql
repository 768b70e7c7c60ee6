-- admit: tasks that wait until other tasks, their parents, have succeeded. Each pass looks at the states of the parents, so
-- no end of a parent can be missed, and a finish does nothing for them.
-- moves: held -> ready

-- name: known
-- The tasks among these that exist, each with its tenant.
-- 1 ids: array of uuid
SELECT t.id, t.tenant
FROM unnest($1::uuid[]) AS given (value)
JOIN /*schema*/task AS t ON t.id = given.value
LEFT JOIN /*schema*/enqueue_batch_task AS s ON s.task_id = t.id
LEFT JOIN /*schema*/enqueue_batch AS c ON c.id = s.batch_id
WHERE s.task_id IS NULL
    OR c.committed_at IS NOT NULL

-- name: add_parent
-- Does nothing unless the task is held.
-- 1 task ids, 2 their parents, 3 what happens if the parent dies or is cancelled: wait, cancel or run
INSERT INTO /*schema*/task_after (task_id, parent_id, on_failure)
SELECT w.task_id, given.parent_id, given.on_failure
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS given (task_id, parent_id, on_failure)
JOIN /*schema*/waiting AS w ON w.task_id = given.task_id
WHERE w.state = 'held'
ON CONFLICT DO NOTHING

-- name: parents
-- A page of the parents that some task waits for.
-- 1 id after which to continue, 2 how many at most
SELECT DISTINCT parent_id
FROM /*schema*/task_after
WHERE parent_id > $1
ORDER BY parent_id
LIMIT $2

-- name: ends
-- How those of these tasks ended that are final, or `deleted`.
-- 1 ids: array of uuid
SELECT
    given.value,
    CASE WHEN a.task_id IS NOT NULL THEN a.state WHEN d.task_id IS NOT NULL THEN 'dead' ELSE 'deleted' END
FROM unnest($1::uuid[]) AS given (value)
LEFT JOIN /*schema*/task AS t ON t.id = given.value
LEFT JOIN /*schema*/archive AS a ON a.task_id = given.value
LEFT JOIN /*schema*/dead AS d ON d.task_id = given.value
WHERE t.id IS NULL
    OR a.task_id IS NOT NULL
    OR d.task_id IS NOT NULL

-- name: waits_on
-- Whether a task waits for one of these parents, which failed, and is not to wait on.
-- 1 parents: array of uuid
SELECT DISTINCT parent_id
FROM /*schema*/task_after
WHERE parent_id = ANY ($1::uuid[])
    AND on_failure <> 'wait'

-- name: lock_children
-- Lock the tasks that wait for these parents, so that the one that removes the last parent sees that none is left.
-- 1 parents: array of uuid
SELECT w.task_id
FROM /*schema*/waiting AS w
WHERE w.task_id = ANY (ARRAY(SELECT e.task_id FROM /*schema*/task_after AS e WHERE e.parent_id = ANY ($1::uuid[])))
ORDER BY w.task_id
FOR UPDATE

-- name: remove_succeeded
-- 1 parents that succeeded: array of uuid
DELETE FROM /*schema*/task_after
WHERE parent_id = ANY ($1::uuid[])

-- name: remove_failed
-- 1 parents that failed: array of uuid
DELETE FROM /*schema*/task_after
WHERE parent_id = ANY ($1::uuid[])
    AND on_failure = 'run'

-- name: to_cancel
-- The tasks to be cancelled because one of these parents failed.
-- 1 parents that failed: array of uuid
SELECT task_id, parent_id
FROM /*schema*/task_after
WHERE parent_id = ANY ($1::uuid[])
    AND on_failure = 'cancel'

-- name: remove_all
-- 1 tasks: array of uuid
DELETE FROM /*schema*/task_after
WHERE task_id = ANY ($1::uuid[])

-- name: free
-- Those of these tasks that are held, and have no parent left.
-- 1 tasks: array of uuid
SELECT w.task_id
FROM /*schema*/waiting AS w
WHERE w.task_id = ANY ($1::uuid[])
    AND w.state = 'held'
    AND w.held_by = 'after'
    AND NOT EXISTS (SELECT 1 FROM /*schema*/task_after AS e WHERE e.task_id = w.task_id)

-- name: left_behind
-- Held tasks without a parent, which no end of a parent will admit.
-- 1 how many at most
SELECT w.task_id
FROM /*schema*/waiting AS w
WHERE w.held_by = 'after'
    AND w.held_by <> ''
    AND w.state = 'held'
    AND NOT EXISTS (SELECT 1 FROM /*schema*/task_after AS e WHERE e.task_id = w.task_id)
LIMIT $1

-- name: ready
-- 1 tasks: array of uuid, 2 now
INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT w.task_id, w.queue, w.priority, w.upstream, w.function, w.tenant, $2, $2, w.run
FROM /*schema*/waiting AS w
WHERE w.task_id = ANY ($1::uuid[])
    AND w.state = 'held'

-- name: leave
-- 1 tasks: array of uuid
DELETE FROM /*schema*/waiting
WHERE task_id = ANY ($1::uuid[])
    AND state = 'held'

-- name: of_task
-- What a task waits for, with the states of these tasks; NULL: deleted.
-- 1 task id, 2 how many at most
SELECT
    e.parent_id,
    CASE
        WHEN t.id IS NULL THEN NULL
        WHEN a.task_id IS NOT NULL THEN a.state
        WHEN d.task_id IS NOT NULL THEN 'dead'
        WHEN n.task_id IS NOT NULL THEN 'running'
        WHEN w.task_id IS NOT NULL THEN w.state
        ELSE 'ready'
    END
FROM /*schema*/task_after AS e
LEFT JOIN /*schema*/task AS t ON t.id = e.parent_id
LEFT JOIN /*schema*/archive AS a ON a.task_id = e.parent_id
LEFT JOIN /*schema*/dead AS d ON d.task_id = e.parent_id
LEFT JOIN /*schema*/running AS n ON n.task_id = e.parent_id
LEFT JOIN /*schema*/waiting AS w ON w.task_id = e.parent_id
WHERE e.task_id = $1
ORDER BY e.parent_id
LIMIT $2
