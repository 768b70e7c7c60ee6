-- list_due_schedules: find schedules with a due tick, and schedules with a tick that waits for an earlier task.

-- name: is_due
-- 1 at
SELECT EXISTS (SELECT 1 FROM schedule WHERE next_at <= ?1)
    OR EXISTS (SELECT 1 FROM tick WHERE outcome = 'queued')

-- name: due
-- 1 at, 2 and 3 the next tick and the name after which to continue, 4 how many at most
SELECT name, application, rule, task, next_at, revision, changed_at, paused_at
FROM schedule
WHERE next_at <= ?1
    AND (next_at, name) > (?2, ?3)
ORDER BY next_at, name
LIMIT ?4

-- name: waiting
-- Schedules with a queued tick whose next tick is not due.
-- 1 at
SELECT name, application, rule, task, next_at, revision, changed_at, paused_at
FROM schedule
WHERE name IN (SELECT schedule FROM tick WHERE outcome = 'queued')
    AND (next_at IS NULL OR next_at > ?1)
ORDER BY name

-- name: queued
-- 1 schedule
SELECT schedule, at
FROM tick
WHERE schedule = ?1
    AND outcome = 'queued'
ORDER BY at

-- name: open
-- The tasks that counted as unfinished at the last check, each with its state; NULL if the task is final or gone.
-- 1 schedule
SELECT
    t.schedule, t.at, t.task_id,
    coalesce(
        (SELECT 'ready' FROM ready WHERE task_id = t.task_id),
        (SELECT 'running' FROM running WHERE task_id = t.task_id),
        (SELECT state FROM waiting WHERE task_id = t.task_id)
    )
FROM tick AS t
WHERE t.schedule = ?1
    AND t.open = 1
ORDER BY t.at
