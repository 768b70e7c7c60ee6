-- identity: which database this is.

-- name: identity
SELECT /*schema*/identity()::text
