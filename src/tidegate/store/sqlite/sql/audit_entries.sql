-- audit_entries: add and list audit entries.

-- name: insert
-- 1 id, 2 actor, 3 role, 4 tenant or NULL, 5 action, 6 target, 7 answer, 8 why, 9 at
INSERT INTO audit (id, at, actor, role, tenant, action, target, answer, why)
VALUES (?1, ?9, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (id) DO NOTHING

-- name: page
-- Newest first.
-- 1 id before which to continue (the largest id to start), 2 how many at most
SELECT id, at, actor, role, tenant, action, target, answer, why
FROM audit
WHERE id < ?1
ORDER BY id DESC
LIMIT ?2
