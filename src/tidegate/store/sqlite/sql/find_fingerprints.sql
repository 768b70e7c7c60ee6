-- find_fingerprints: find the groups of failures whose fingerprints begin with some digits, through the primary key.

-- name: find
-- 1 the digits, 2 the digits followed by a character after all digits, 3 how many at most
SELECT fingerprint
FROM failure_group
WHERE fingerprint >= ?1
    AND fingerprint < ?2
ORDER BY fingerprint
LIMIT ?3
