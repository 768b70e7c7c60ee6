-- audit: the record of who changed what.

-- name: keep
-- 1 at, then arrays: 2 ids, 3 actors, 4 roles, 5 tenants or NULL, 6 actions, 7 targets, 8 answers, 9 whys
INSERT INTO /*schema*/audit (id, at, actor, role, tenant, action, target, answer, why)
SELECT g.id, m.now, g.actor, g.role, g.tenant, g.action, g.target, g.answer, g.why
FROM (SELECT /*schema*/moment($1) AS now) AS m
CROSS JOIN unnest(
    $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[]
) AS g (id, actor, role, tenant, action, target, answer, why)
ON CONFLICT (id) DO NOTHING

-- name: page
-- The newest first.
-- 1 id before which to go on (the largest for the start), 2 how many at most
SELECT id, at, actor, role, tenant, action, target, answer, why
FROM /*schema*/audit
WHERE id < $1
ORDER BY id DESC
LIMIT $2
