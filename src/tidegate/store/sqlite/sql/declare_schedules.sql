-- declare_schedules: store the set of schedules that an application declares.

-- name: sets
-- The sets of an application, with the set in force first.
-- 1 application
SELECT fingerprint, generation, declared_at
FROM schedule_set
WHERE application = ?1
ORDER BY generation DESC

-- name: is_used
-- Whether a live worker has this set.
-- 1 now, 2 fingerprint
SELECT EXISTS (
    SELECT 1
    FROM worker
    WHERE retired_at IS NULL
        AND expires_at > ?1
        AND schedule_set = ?2
)

-- name: bring_into_force
-- 1 application, 2 fingerprint, 3 generation, 4 now
INSERT INTO schedule_set (application, fingerprint, generation, declared_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (application, fingerprint) DO UPDATE
SET generation = excluded.generation, declared_at = excluded.declared_at

-- name: stored
-- The schedules with these names, and all schedules of the application, including removed ones.
-- 1 application, 2 names as a JSON array
SELECT name, application, rule, task, next_at, paused_at, removed_at
FROM schedule
WHERE (application = ?1 AND application <> '')
    OR name IN (SELECT value FROM json_each(?2))

-- name: put
-- 1 name, 2 application, 3 rule as JSON, 4 task as JSON, 5 its next tick or NULL, 6 now
INSERT INTO schedule (name, application, rule, task, next_at, revision, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6)
ON CONFLICT (name) DO UPDATE
SET
    application = excluded.application,
    rule = excluded.rule,
    task = excluded.task,
    next_at = excluded.next_at,
    revision = schedule.revision + 1,
    changed_at = excluded.changed_at,
    removed_at = NULL

-- name: retire
-- 1 name, 2 now
UPDATE schedule
SET next_at = NULL, removed_at = ?2, revision = revision + 1
WHERE name = ?1
