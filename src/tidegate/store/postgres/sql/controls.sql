-- controls: pauses of queues and functions, and orders to workers.

-- name: pause
-- A second pause changes nothing.
-- 1 kind, 2 name, 3 at, 4 who, 5 why
INSERT INTO /*schema*/pause (kind, name, paused_at, paused_by, why)
VALUES ($1, $2, /*schema*/moment($3), $4, $5)
ON CONFLICT (kind, name) DO NOTHING

-- name: resume
-- 1 kind, 2 name
DELETE FROM /*schema*/pause
WHERE kind = $1
    AND name = $2

-- name: pauses
SELECT kind, name, paused_at, paused_by, why
FROM /*schema*/pause
ORDER BY kind DESC, name

-- name: set
-- 1 kind, 2 name, 3 value or NULL, 4 at, 5 who, 6 why
INSERT INTO /*schema*/control AS c (kind, name, value, version, changed_at, changed_by, why)
VALUES ($1, $2, $3, 1, /*schema*/moment($4), $5, $6)
ON CONFLICT (kind, name) DO UPDATE
SET
    value = excluded.value,
    version = c.version + 1,
    changed_at = excluded.changed_at,
    changed_by = excluded.changed_by,
    why = excluded.why
RETURNING version

-- name: controls
SELECT kind, name, value, version, changed_at, changed_by, why
FROM /*schema*/control
ORDER BY kind, name

-- name: report
-- A report on an older version than the stored one changes nothing.
-- Arrays: 1 kinds, 2 names, 3 reporters, 4 versions, 5 answers; 6 at
INSERT INTO /*schema*/control_report AS c (kind, name, reporter, version, answer, reported_at)
SELECT given.kind, given.name, given.reporter, given.version, given.answer, /*schema*/moment($6)
FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::text[]) AS given (kind, name, reporter, version, answer)
ORDER BY given.kind, given.name, given.reporter
ON CONFLICT (kind, name, reporter) DO UPDATE
SET
    version = excluded.version,
    answer = excluded.answer,
    reported_at = excluded.reported_at
WHERE excluded.version >= c.version

-- name: reports
-- 1 kind, 2 name
SELECT reporter, version, reported_at, answer
FROM /*schema*/control_report
WHERE kind = $1
    AND name = $2
ORDER BY reporter

-- name: set_slots
-- 1 worker id, 2 slots
UPDATE /*schema*/worker
SET slots = $2
WHERE id = $1

-- name: set_code
-- 1 worker id, 2 version of its code
UPDATE /*schema*/worker
SET code = $2
WHERE id = $1

-- name: forget_reports
-- 1 at, 2 seconds since the report
DELETE FROM /*schema*/control_report
WHERE reported_at < /*schema*/moment($1) - $2
    AND reporter NOT IN (SELECT id FROM /*schema*/worker)

-- name: forget_processes
-- Settings of a single process that is gone. The id of a process is a UUID as text.
-- 1 at, 2 seconds since the change
DELETE FROM /*schema*/control
WHERE changed_at < /*schema*/moment($1) - $2
    AND kind = 'quiet'
    AND length(name) = 36
    AND name NOT IN (SELECT id FROM /*schema*/worker)
