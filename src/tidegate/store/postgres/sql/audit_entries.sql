-- audit_entries: add and list audit entries.

-- name: insert
-- Arrays: 1 ids, 2 actors, 3 roles, 4 tenants or NULL, 5 actions, 6 targets, 7 answers, 8 whys; 9 at
INSERT INTO /*schema*/audit (id, at, actor, role, tenant, action, target, answer, why)
SELECT g.id, m.now, g.actor, g.role, g.tenant, g.action, g.target, g.answer, g.why
FROM (SELECT /*schema*/moment($9) AS now) AS m
CROSS JOIN unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]
) AS g (id, actor, role, tenant, action, target, answer, why)
ON CONFLICT (id) DO NOTHING

-- name: page
-- Newest first.
-- 1 id before which to continue (the largest id to start), 2 how many at most
SELECT id, at, actor, role, tenant, action, target, answer, why
FROM /*schema*/audit
WHERE id < $1
ORDER BY id DESC
LIMIT $2
