-- declare_schedules: store the set of schedules that an application declares.

-- name: sets
-- The sets of an application, with the set in force first.
-- 1 application
SELECT fingerprint, generation, declared_at
FROM /*schema*/schedule_set
WHERE application = $1
ORDER BY generation DESC

-- name: is_used
-- Whether a live worker has this set.
-- 1 now, 2 fingerprint
SELECT EXISTS (
    SELECT 1
    FROM /*schema*/worker
    WHERE retired_at IS NULL
        AND expires_at > $1
        AND schedule_set = $2
)

-- name: bring_into_force
-- 1 application, 2 fingerprint, 3 generation, 4 now
INSERT INTO /*schema*/schedule_set (application, fingerprint, generation, declared_at)
VALUES ($1, $2, $3, $4)
ON CONFLICT (application, fingerprint) DO UPDATE
SET generation = excluded.generation, declared_at = excluded.declared_at

-- name: stored
-- The schedules with these names, and all schedules of the application, including removed ones.
-- 1 application, 2 names as a JSON array
SELECT name, application, rule, task, next_at, paused_at, removed_at
FROM /*schema*/schedule
WHERE (application = $1 AND application <> '')
    OR name IN (SELECT jsonb_array_elements_text($2::text::jsonb))

-- name: put
-- 1 names, 2 applications, 3 rules as JSON, 4 tasks as JSON, 5 their next ticks, 6 now
INSERT INTO /*schema*/schedule AS s (name, application, rule, task, next_at, revision, changed_at)
SELECT given.name, given.application, given.rule, given.task, given.next_at, 1, $6
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::float8[])
    AS given (name, application, rule, task, next_at)
ON CONFLICT (name) DO UPDATE
SET
    application = excluded.application,
    rule = excluded.rule,
    task = excluded.task,
    next_at = excluded.next_at,
    revision = s.revision + 1,
    changed_at = excluded.changed_at,
    removed_at = NULL

-- name: retire
-- 1 names, 2 now
UPDATE /*schema*/schedule
SET next_at = NULL, removed_at = $2, revision = revision + 1
WHERE name = ANY ($1::text[])
