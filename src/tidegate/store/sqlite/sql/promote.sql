-- promote: move what is due into the main queue, the longest due first, in short batches. Its rank is the
-- one it was given when it began to wait. Re-runs that gates or budgets keep back are held until a later moment;
-- the planned one, `due_at`, stays as it was written.
-- moves: scheduled -> ready, retrying -> ready

-- name: is_due
-- 1 at
SELECT EXISTS (
    SELECT 1
    FROM waiting
    WHERE coalesce(held_until_at, due_at) <= ?1
        AND due_at IS NOT NULL
        AND +state IN ('scheduled', 'retrying')
)

-- name: due
-- Read from the index `waiting_due`; what is not due is never looked at. The sign keeps SQLite from taking the
-- index by state instead, which would sort everything that waits.
-- 1 at, 2 how many at most
SELECT task_id, upstream, spends, urgent
FROM waiting
WHERE coalesce(held_until_at, due_at) <= ?1
    AND due_at IS NOT NULL
    AND +state IN ('scheduled', 'retrying')
ORDER BY coalesce(held_until_at, due_at)
LIMIT ?2

-- name: early
-- What began to wait before its upstream's gate opened and may go before its time, the longest waiting first.
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
-- Whether `early` would find any.
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
-- Whether an upstream has anything in the main queue.
-- 1 upstream
SELECT EXISTS (SELECT 1 FROM ready WHERE upstream = ?1 AND upstream <> '')

-- name: postpone
-- 1 task id, 2 the moment until which it is held, 3 what holds it: gate, upstream or system
UPDATE waiting
SET held_until_at = ?2, held_by = ?3
WHERE task_id = ?1

-- name: pause_deadline
-- The total timeout of a task that only its upstream's gate keeps back does not run down until it is claimed.
-- 1 task id, 2 now
UPDATE task
SET parked_at = ?2
WHERE id = ?1
    AND parked_at IS NULL

-- name: reschedule_earlier
-- What a retry budget holds back comes nearer by the same part.
-- 1 what holds it: upstream or system, 2 upstream; of the system all count, 3 now, 4 part
UPDATE waiting
SET held_until_at = ?3 + (held_until_at - ?3) * ?4
WHERE held_by = ?1
    AND held_by <> ''
    AND (upstream = ?2 OR ?1 = 'system')
    AND held_until_at > ?3

-- name: clear_server_waits
-- What waits for an upstream that a person opened, or has tried, need not wait for the moment its server named.
-- A longer backoff beside it ends too, as after a good probe. Its gate and the budgets still say when it goes.
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
