-- retire_worker: retire a worker for good.

-- name: lock
-- The only writer already has the lock. This statement keeps the steps the same in both stores.
-- 1 id
SELECT id
FROM worker
WHERE id = ?1

-- name: retire
-- 1 at, 2 id, 3 why, 4 whether its lease ran out (not seen to die), 5 whether only if its lease has ended,
-- 6 task id of the run that caused its end or NULL, 7 number of that run or NULL
UPDATE worker
SET
    retired_at = ?1,
    retired_why = ?3,
    lost = ?4,
    culprit_id = ?6,
    culprit_run = ?7
WHERE id = ?2
    AND retired_at IS NULL
    AND (NOT ?5 OR expires_at <= ?1)

-- name: is_alive
-- 1 id
SELECT 1
FROM worker
WHERE id = ?1
    AND retired_at IS NULL

-- name: count_expired
-- Count a lease that ran out.
-- 1 id
INSERT INTO total_event (kind, name, function, reason, events)
SELECT 'lease_expired', pool, '', '', 1
FROM worker
WHERE id = ?1
ON CONFLICT (kind, name, function, reason) DO UPDATE
SET events = events + 1
