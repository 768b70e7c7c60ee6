-- promote: move due tasks into the main queue, longest due first, in short batches. A task keeps the rank that it got
-- when it began to wait. Re-runs that gates or budgets hold back are held until a later moment; the planned moment,
-- `due_at`, does not change.
-- moves: scheduled -> ready, retrying -> ready, suspended -> ready

-- name: is_due
-- 1 at
SELECT EXISTS (
    SELECT 1
    FROM waiting
    WHERE coalesce(held_until_at, due_at) <= ?1
        AND due_at IS NOT NULL
        AND +state IN ('scheduled', 'retrying', 'suspended')
)

-- name: due
-- Read from the index `waiting_due`; tasks that are not due are never read. The plus sign keeps SQLite from using
-- the index by state, which would sort all waiting tasks.
-- 1 at, 2 how many at most
SELECT task_id, upstream, spends, urgent
FROM waiting
WHERE coalesce(held_until_at, due_at) <= ?1
    AND due_at IS NOT NULL
    AND +state IN ('scheduled', 'retrying', 'suspended')
ORDER BY coalesce(held_until_at, due_at)
LIMIT ?2

-- name: early
-- Tasks that began to wait before their upstream's gate opened and may leave early, longest waiting first.
-- 1 upstream, 2 moment the gate opened, 3 now, 4 how many at most
SELECT task_id, upstream, spends, urgent
FROM waiting
WHERE upstream = ?1
    AND upstream <> ''
    AND since_at < ?2
    AND coalesce(held_until_at, due_at) > ?3
    AND state = 'retrying'
    AND coalesce(floor_at, 0) <= ?3
ORDER BY since_at
LIMIT ?4

-- name: is_early
-- Whether `early` would find any task.
-- 1 upstream, 2 moment the gate opened, 3 now
SELECT EXISTS (
    SELECT 1
    FROM waiting
    WHERE upstream = ?1
        AND upstream <> ''
        AND since_at < ?2
        AND coalesce(held_until_at, due_at) > ?3
        AND state = 'retrying'
        AND coalesce(floor_at, 0) <= ?3
)

-- name: has_ready
-- Whether an upstream has any task in the main queue.
-- 1 upstream
SELECT EXISTS (SELECT 1 FROM ready WHERE upstream = ?1 AND upstream <> '')

-- name: postpone
-- 1 task id, 2 the moment until which it is held, 3 what holds it: gate, upstream or system
UPDATE waiting
SET held_until_at = ?2, held_by = ?3
WHERE task_id = ?1

-- name: pause_deadline
-- Pause the total timeout of a task that only its upstream's gate holds back, until the task is claimed.
-- 1 task id, 2 now
UPDATE task
SET parked_at = ?2
WHERE id = ?1
    AND parked_at IS NULL

-- name: reschedule_earlier
-- Reduce the remaining wait of tasks that a retry budget holds back, each by the same factor.
-- 1 what holds it: upstream or system, 2 upstream (ignored for the system), 3 now, 4 factor
UPDATE waiting
SET held_until_at = ?3 + (held_until_at - ?3) * ?4
WHERE held_by = ?1
    AND held_by <> ''
    AND (upstream = ?2 OR ?1 = 'system')
    AND held_until_at > ?3

-- name: clear_server_waits
-- After a person opened or probed an upstream, its tasks no longer wait for the moment that its server named. A longer
-- backoff ends too, as after a successful probe. The gate and the budgets still decide when the tasks leave.
-- 1 upstream, 2 now
UPDATE waiting
SET floor_at = NULL, held_until_at = ?2, held_by = ''
WHERE upstream = ?1
    AND upstream <> ''
    AND state = 'retrying'
    AND floor_at > ?2

-- name: ready
-- 1 ids: carray of 16-byte ids, 2 now
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT
    w.task_id, w.queue, w.priority, w.upstream, w.function, w.tenant, w.rank,
    min(coalesce(w.held_until_at, w.due_at), ?2), w.run
FROM carray(?1) AS given
CROSS JOIN waiting AS w ON w.task_id = given.value

-- name: leave
-- 1 ids: carray of 16-byte ids
DELETE FROM waiting
WHERE task_id IN (SELECT value FROM carray(?1))
