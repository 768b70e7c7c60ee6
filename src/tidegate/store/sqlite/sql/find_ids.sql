-- find_ids: the tasks whose ids begin with some digits, by the primary key.

-- name: find
-- 1 the least such id, 2 the largest, 3 tenant or NULL for all, 4 at most so many
SELECT id
FROM task
WHERE id BETWEEN ?1 AND ?2
    AND (?3 IS NULL OR tenant = ?3)
ORDER BY id
LIMIT ?4
