-- fire_schedules: store the outcomes of due ticks. The tasks are enqueued in the same transaction.

-- name: take
-- The schedules among these that still have the revision from which their firing was planned, locked. A schedule that
-- another process fires or changes at this moment is left out.
-- 1 names, 2 revisions
SELECT s.name
FROM unnest($1::text[], $2::bigint[]) AS given (name, revision)
JOIN /*schema*/schedule AS s ON s.name = given.name AND s.revision = given.revision
FOR UPDATE OF s SKIP LOCKED

-- name: advance
-- 1 names, 2 their next ticks
UPDATE /*schema*/schedule AS s
SET next_at = given.next_at, revision = s.revision + 1
FROM unnest($1::text[], $2::float8[]) AS given (name, next_at)
WHERE s.name = given.name

-- name: decide
-- Returns the ticks that were not decided before, or were queued.
-- 1 schedules, 2 planned moments, 3 the last of several ticks, 4 how many, 5 outcomes, 6 reasons, 7 task ids,
-- 8 whether their tasks count as unfinished, 9 now
INSERT INTO /*schema*/tick AS t (schedule, at, until_at, ticks, outcome, reason, task_id, open, decided_at)
SELECT given.schedule, given.at, given.until_at, given.ticks, given.outcome, given.reason, given.task_id, given.open, $9
FROM unnest(
    $1::text[], $2::float8[], $3::float8[], $4::integer[], $5::text[], $6::text[], $7::uuid[], $8::smallint[]
) AS given (schedule, at, until_at, ticks, outcome, reason, task_id, open)
ON CONFLICT (schedule, at) DO UPDATE
SET
    outcome = excluded.outcome,
    reason = excluded.reason,
    task_id = excluded.task_id,
    open = excluded.open,
    decided_at = excluded.decided_at
WHERE t.outcome = 'queued'
RETURNING t.schedule, t.at

-- name: close
-- Tasks of these schedules that are final no longer count as unfinished.
-- 1 schedules
UPDATE /*schema*/tick AS t
SET open = 0
WHERE t.schedule = ANY ($1::text[])
    AND t.open = 1
    AND NOT EXISTS (SELECT 1 FROM /*schema*/ready AS r WHERE r.task_id = t.task_id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/running AS r WHERE r.task_id = t.task_id)
    AND NOT EXISTS (SELECT 1 FROM /*schema*/waiting AS w WHERE w.task_id = t.task_id)

-- name: count_unfired
-- Arrays: 1 schedules, 2 outcomes, 3 ticks
INSERT INTO /*schema*/total_event AS t (kind, name, function, reason, events)
SELECT 'tick', given.schedule, '', given.outcome, given.ticks
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS given (schedule, outcome, ticks)
ORDER BY given.schedule, given.outcome
ON CONFLICT (kind, name, function, reason) DO UPDATE
SET events = t.events + excluded.events
