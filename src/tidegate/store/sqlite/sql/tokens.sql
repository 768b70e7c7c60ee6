-- tokens: add, find, list and revoke access tokens. Only digests of tokens are stored.

-- name: add
-- 1 id, 2 digest, 3 name, 4 role, 5 tenant or NULL, 6 at, 7 seconds until it expires or NULL
INSERT INTO token (id, digest, name, role, tenant, created_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6 + ?7)
ON CONFLICT (id) DO NOTHING

-- name: by_digest
-- Expired and revoked tokens are not found.
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
-- Returns a row if the token exists. A second revocation does not change the moment of the first.
-- 1 id, 2 at
UPDATE token
SET revoked_at = coalesce(revoked_at, ?2)
WHERE id = ?1
RETURNING 1
