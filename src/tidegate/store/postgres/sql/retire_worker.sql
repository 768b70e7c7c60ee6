-- retire_worker: retire a worker for good. Its row is first locked exclusively. So a claim that has locked the key of
-- the row ends before this, and its tasks become orphans; a later claim finds the worker retired.

-- name: lock
-- 1 id
SELECT id
FROM /*schema*/worker
WHERE id = $1
FOR UPDATE

-- name: retire
-- 1 at, 2 id, 3 why, 4 whether its lease ran out (not seen to die), 5 whether only if its lease has ended, 6 task id of the
-- run that caused its end or NULL, 7 number of that run or NULL
UPDATE /*schema*/worker AS w
SET
    retired_at = clock.now,
    retired_why = $3,
    lost = $4,
    culprit_id = $6,
    culprit_run = $7
FROM (SELECT /*schema*/moment($1) AS now) AS clock
WHERE w.id = $2
    AND w.retired_at IS NULL
    AND (NOT $5 OR w.expires_at <= clock.now)

-- name: is_alive
-- 1 id
SELECT 1
FROM /*schema*/worker
WHERE id = $1
    AND retired_at IS NULL

-- name: count_expired
-- Count a lease that ran out.
-- 1 id
INSERT INTO /*schema*/total_event AS t (kind, name, function, reason, events)
SELECT 'lease_expired', pool, '', '', 1
FROM /*schema*/worker
WHERE id = $1
ON CONFLICT (kind, name, function, reason) DO UPDATE
SET events = t.events + 1
