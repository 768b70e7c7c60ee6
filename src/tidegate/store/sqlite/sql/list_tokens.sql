-- list_tokens: keep, find, list and revoke what lets people in. Only digests of tokens are stored.

-- name: add
-- 1 id, 2 digest, 3 name, 4 role, 5 tenant or NULL, 6 at, 7 seconds until it expires or NULL
INSERT INTO token (id, digest, name, role, tenant, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6 + ?7)
ON CONFLICT (id) DO NOTHING

-- name: by_digest
-- Expired and revoked tokens are nobody's.
-- 1 digest, 2 at
SELECT id, name, role, tenant, created_at, expires_at, revoked_at
FROM token
WHERE digest = ?1
    AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > ?2)

-- name: all
SELECT id, name, role, tenant, created_at, expires_at, revoked_at
FROM token
ORDER BY created_at, id

-- name: revoke
-- A row comes back if the token is there; the first revocation's moment stays.
-- 1 id, 2 at
UPDATE token
SET revoked_at = coalesce(revoked_at, ?2)
WHERE id = ?1
RETURNING 1
