-- fire_schedules: store the outcomes of due ticks. The tasks are enqueued in the same transaction.

-- name: take
-- The schedule, if it still has the revision from which the firing was planned.
-- 1 name, 2 revision
SELECT name
FROM schedule
WHERE name = ?1
    AND revision = ?2

-- name: advance
-- 1 name, 2 its next tick or NULL
UPDATE schedule
SET next_at = ?2, revision = revision + 1
WHERE name = ?1

-- name: decide
-- Returns a row if the tick was not decided before or was queued.
-- 1 schedule, 2 planned moment, 3 the last of several ticks, 4 how many, 5 outcome, 6 reason, 7 task id or NULL,
-- 8 whether its task counts as unfinished, 9 now
INSERT INTO tick (schedule, at, until_at, ticks, outcome, reason, task_id, open, decided_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (schedule, at) DO UPDATE
SET
    outcome = excluded.outcome,
    reason = excluded.reason,
    task_id = excluded.task_id,
    open = excluded.open,
    decided_at = excluded.decided_at
WHERE tick.outcome = 'queued'
RETURNING schedule, at

-- name: close
-- Tasks of these schedules that are final no longer count as unfinished.
-- 1 schedule
UPDATE tick
SET open = 0
WHERE schedule = ?1
    AND open = 1
    AND NOT EXISTS (SELECT 1 FROM ready AS r WHERE r.task_id = tick.task_id)
    AND NOT EXISTS (SELECT 1 FROM running AS r WHERE r.task_id = tick.task_id)
    AND NOT EXISTS (SELECT 1 FROM waiting AS w WHERE w.task_id = tick.task_id)

-- name: count_unfired
-- 1 schedule, 2 outcome, 3 ticks
INSERT INTO total_event (kind, name, function, reason, events)
VALUES ('tick', ?1, '', ?2, ?3)
ON CONFLICT (kind, name, function, reason) DO UPDATE
SET events = events + excluded.events
