-- audit: the record of who changed what.

-- name: keep
-- 1 id, 2 now, 3 actor, 4 role, 5 tenant or NULL, 6 action, 7 target, 8 answer, 9 why
INSERT INTO /*schema*/audit (id, at, actor, role, tenant, action, target, answer, why)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: page
-- The newest first.
-- 1 id before which to go on (the largest for the start), 2 how many at most
SELECT id, at, actor, role, tenant, action, target, answer, why
FROM /*schema*/audit
WHERE id < $1
ORDER BY id DESC
LIMIT $2
