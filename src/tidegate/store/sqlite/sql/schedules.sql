-- schedules: add, change, run and list schedules, and list their ticks.

-- name: lock
-- Declarations and people change schedules one after the other. On SQLite every writer has the lock.
SELECT 1

-- name: one
-- 1 name
SELECT name, application, rule, task, next_at, paused_at, removed_at
FROM schedule
WHERE name = ?1

-- name: delete
-- 1 name
DELETE FROM schedule
WHERE name = ?1

-- name: pause
-- 1 name, 2 now
UPDATE schedule
SET next_at = NULL, paused_at = coalesce(paused_at, ?2), revision = revision + 1
WHERE name = ?1

-- name: resume
-- 1 name, 2 its next tick or NULL
UPDATE schedule
SET next_at = ?2, paused_at = NULL, revision = revision + 1
WHERE name = ?1

-- name: skip_queued
-- 1 schedule, 2 reason, 3 now
UPDATE tick
SET outcome = 'skipped', reason = ?2, decided_at = ?3
WHERE schedule = ?1
    AND outcome = 'queued'

-- name: record_run
-- Record a run by hand. Returns a row unless the run is recorded already. Its planned moment is the moment of the
-- request, or just after the latest tick if both would be the same. 1 schedule, 2 moment of the request, 3 reason, 4
-- task id, 5 whether its task counts as unfinished
INSERT INTO tick (schedule, at, until_at, ticks, outcome, reason, task_id, open, decided_at)
SELECT ?1, free.at, free.at, 1, 'fired', ?3, ?4, ?5, ?2
FROM (
    SELECT max(?2, coalesce(max(at) + 0.001, 0)) AS at
    FROM tick
    WHERE schedule = ?1
        AND at < ?2 + 1
) AS free
WHERE NOT EXISTS (SELECT 1 FROM tick WHERE schedule = ?1 AND task_id = ?4)
RETURNING 1

-- name: touch
-- A firing that was planned before this change is refused.
-- 1 name
UPDATE schedule
SET revision = revision + 1
WHERE name = ?1

-- name: list
-- Each schedule with its latest tick.
-- 1 the name after which to continue, 2 how many at most
SELECT
    s.name, s.application, s.rule, s.task, s.next_at, s.revision, s.changed_at, s.paused_at,
    t.schedule, t.at, t.until_at, t.ticks, t.outcome, t.reason, t.decided_at, t.task_id
FROM schedule AS s
LEFT JOIN tick AS t ON t.schedule = s.name AND t.at = (SELECT max(at) FROM tick WHERE schedule = s.name)
WHERE s.name > ?1
    AND s.removed_at IS NULL
ORDER BY s.name
LIMIT ?2

-- name: get
-- 1 name
SELECT
    s.name, s.application, s.rule, s.task, s.next_at, s.revision, s.changed_at, s.paused_at,
    t.schedule, t.at, t.until_at, t.ticks, t.outcome, t.reason, t.decided_at, t.task_id
FROM schedule AS s
LEFT JOIN tick AS t ON t.schedule = s.name AND t.at = (SELECT max(at) FROM tick WHERE schedule = s.name)
WHERE s.name = ?1
    AND s.removed_at IS NULL

-- name: ticks
-- 1 schedule, 2 the planned moment before which to continue or NULL, 3 how many at most
SELECT schedule, at, until_at, ticks, outcome, reason, decided_at, task_id
FROM tick
WHERE schedule = ?1
    AND at < coalesce(?2, 9e999)
ORDER BY at DESC
LIMIT ?3

-- name: unfired
-- 1 moment since which they were decided, 2 how many at most
SELECT schedule, at, until_at, ticks, outcome, reason, decided_at, task_id
FROM tick
WHERE outcome IN ('missed', 'skipped')
    AND decided_at >= ?1
ORDER BY decided_at, schedule, at
LIMIT ?2

-- name: last_successes
-- When the latest task of each schedule that succeeded ended, among those of its latest twenty ticks.
SELECT s.name, max(a.finished_at)
FROM schedule AS s
CROSS JOIN archive AS a ON a.task_id IN (
    SELECT t.task_id
    FROM tick AS t
    WHERE t.schedule = s.name
        AND t.task_id IS NOT NULL
    ORDER BY t.at DESC
    LIMIT 20
)
WHERE s.removed_at IS NULL
    AND a.state = 'succeeded'
GROUP BY s.name
