-- now: read the store's clock.

-- name: now
-- 1 at: the time that a test has set, or NULL
SELECT /*schema*/moment($1)
