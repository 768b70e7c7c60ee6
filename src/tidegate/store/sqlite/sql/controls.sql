-- controls: what people want of queues, functions and workers.

-- name: pause
-- A second pause changes nothing: the first one counts.
-- 1 kind, 2 name, 3 at, 4 who, 5 why
INSERT INTO pause (kind, name, paused_at, paused_by, why)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (kind, name) DO NOTHING

-- name: resume
-- 1 kind, 2 name
DELETE FROM pause
WHERE kind = ?1
    AND name = ?2

-- name: pauses
SELECT kind, name, paused_at, paused_by, why
FROM pause
ORDER BY kind DESC, name
