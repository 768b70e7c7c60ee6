-- now: the store's clock.

-- name: now
-- 1 at: the moment a test has set, or NULL
SELECT /*schema*/moment($1)
