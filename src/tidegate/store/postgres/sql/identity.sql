-- identity: identify this database.

-- name: identity
SELECT /*schema*/identity()::text
