-- find_ids: find the tasks whose ids begin with some digits, through the primary key.

-- name: find
-- 1 the smallest such id, 2 the largest, 3 tenant or NULL for all, 4 how many at most
SELECT id
FROM /*schema*/task
WHERE id BETWEEN $1::uuid AND $2::uuid
    AND ($3::text IS NULL OR tenant = $3)
ORDER BY id
LIMIT $4
