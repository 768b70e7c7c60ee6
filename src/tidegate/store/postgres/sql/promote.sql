-- promote: move due tasks into the main queue, longest due first, in short batches. Two processes take different
-- tasks at the same time. A task keeps the rank that it got when it began to wait. Re-runs that gates or budgets hold
-- back are held until a later moment; the planned moment, `due_at`, does not change.
-- moves: scheduled -> ready, retrying -> ready, suspended -> ready

-- name: is_due
-- 1 at
SELECT EXISTS (
    SELECT 1
    FROM /*schema*/waiting
    WHERE coalesce(held_until_at, due_at) <= (SELECT /*schema*/moment($1))
        AND due_at IS NOT NULL
        AND state IN ('scheduled', 'retrying', 'suspended')
)

-- name: due
-- Read from the index `waiting_due`; tasks that are not due are never read.
-- 1 at, 2 how many at most
SELECT task_id, upstream, spends, urgent
FROM /*schema*/waiting
WHERE coalesce(held_until_at, due_at) <= (SELECT /*schema*/moment($1))
    AND due_at IS NOT NULL
    AND state IN ('scheduled', 'retrying', 'suspended')
ORDER BY coalesce(held_until_at, due_at)
LIMIT $2
FOR UPDATE SKIP LOCKED

-- name: is_early
-- Whether `early` would find any task.
-- 1 upstream, 2 moment the gate opened, 3 now
SELECT EXISTS (
    SELECT 1
    FROM /*schema*/waiting
    WHERE upstream = $1
        AND upstream <> ''
        AND since_at < $2
        AND coalesce(held_until_at, due_at) > $3
        AND state = 'retrying'
        AND coalesce(floor_at, 0) <= $3
)

-- name: early
-- Tasks that began to wait before their upstream's gate opened and may leave early, longest waiting first.
-- 1 upstream, 2 moment the gate opened, 3 now, 4 how many at most
SELECT task_id, upstream, spends, urgent
FROM /*schema*/waiting
WHERE upstream = $1
    AND upstream <> ''
    AND since_at < $2
    AND coalesce(held_until_at, due_at) > $3
    AND state = 'retrying'
    AND coalesce(floor_at, 0) <= $3
ORDER BY since_at
LIMIT $4
FOR UPDATE SKIP LOCKED

-- name: has_ready
-- Whether an upstream has any task in the main queue.
-- 1 upstream
SELECT EXISTS (SELECT 1 FROM /*schema*/ready WHERE upstream = $1 AND upstream <> '')

-- name: postpone
-- 1 task ids, 2 the moments until which they are held, 3 what holds each: gate, upstream or system
UPDATE /*schema*/waiting AS w
SET held_until_at = given.held_until_at, held_by = given.held_by
FROM unnest($1::uuid[], $2::float8[], $3::text[]) AS given (task_id, held_until_at, held_by)
WHERE w.task_id = given.task_id

-- name: pause_deadline
-- Pause the total timeout of tasks that only their upstream's gate holds back, until they are claimed. Rows that
-- another transaction has locked are left for the next round. Waiting could deadlock: this transaction has locked rows
-- in `waiting`, and others lock `task` first, then `waiting`. 1 task ids, 2 now
UPDATE /*schema*/task
SET parked_at = $2
WHERE id = ANY (ARRAY (
    SELECT id
    FROM /*schema*/task
    WHERE id = ANY ($1::uuid[])
        AND parked_at IS NULL
    FOR UPDATE SKIP LOCKED
))

-- name: reschedule_earlier
-- Reduce the remaining wait of tasks that a retry budget holds back, each by the same factor.
-- 1 what holds it: upstream or system, 2 upstream (ignored for the system), 3 now, 4 factor
UPDATE /*schema*/waiting
SET held_until_at = $3 + (held_until_at - $3) * $4::float8
WHERE held_by = $1
    AND held_by <> ''
    AND (upstream = $2 OR $1 = 'system')
    AND held_until_at > $3

-- name: clear_server_waits
-- After a person opened or probed an upstream, its tasks no longer wait for the moment that its server named. A longer
-- backoff ends too, as after a successful probe. The gate and the budgets still decide when the tasks leave.
-- 1 upstream, 2 now
UPDATE /*schema*/waiting
SET floor_at = NULL, held_until_at = $2, held_by = ''
WHERE upstream = $1
    AND upstream <> ''
    AND state = 'retrying'
    AND floor_at > $2

-- name: ready
-- 1 task ids, 2 now
INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT
    task_id, queue, priority, upstream, function, tenant, rank, least(coalesce(held_until_at, due_at), $2), run
FROM /*schema*/waiting
WHERE task_id = ANY ($1::uuid[])

-- name: leave
-- 1 task ids
DELETE FROM /*schema*/waiting
WHERE task_id = ANY ($1::uuid[])
