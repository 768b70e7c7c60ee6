-- list_unknown_failures: failed attempts that no rule classifies, by fingerprint. The attempts of all
-- stored tasks count, even if the task succeeded later.

-- name: groups
-- 1 moment from which they ended, 2 moment before which, 3 function or NULL
SELECT a.fingerprint, count(*), count(DISTINCT a.task_id), min(a.ended_at), max(a.ended_at)
FROM attempt AS a
WHERE a.verdict = 'unknown'
    AND a.fingerprint IS NOT NULL
    AND a.ended_at >= ?1
    AND a.ended_at < ?2
    AND (
        ?3 IS NULL
        OR EXISTS (SELECT 1 FROM task AS t WHERE t.id = a.task_id AND t.function = ?3)
    )
GROUP BY a.fingerprint

-- name: details
-- The common fields of a group of failures, its functions, and how many of its tasks succeeded.
-- 1 fingerprint, 2 and 3 moments as above
SELECT
    ?1, g.error_class, g.shape, g.frame, sums.functions, sums.succeeded
FROM (SELECT ?1 AS fingerprint) AS given
CROSS JOIN (
    SELECT json_group_array(DISTINCT t.function) AS functions, count(DISTINCT x.task_id) AS succeeded
    FROM attempt AS a
    CROSS JOIN task AS t ON t.id = a.task_id
    LEFT JOIN archive AS x ON x.task_id = a.task_id AND x.state = 'succeeded'
    WHERE a.fingerprint = ?1 AND a.verdict = 'unknown' AND a.ended_at >= ?2 AND a.ended_at < ?3
) AS sums
LEFT JOIN failure_group AS g ON g.fingerprint = ?1

-- name: sample
-- The last attempt of a group. 1 to 3 as above
SELECT a.fingerprint, a.message, a.task_id
FROM attempt AS a
WHERE a.fingerprint = ?1 AND a.verdict = 'unknown' AND a.ended_at >= ?2 AND a.ended_at < ?3
ORDER BY a.ended_at DESC, a.task_id DESC
LIMIT 1
