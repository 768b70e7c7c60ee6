-- list_unknown_failures: failed attempts that no rule classifies, by fingerprint. The attempts of all
-- stored tasks count, even if the task succeeded later.

-- name: groups
-- 1 moment from which they ended, 2 moment before which, 3 function or NULL
SELECT a.fingerprint, count(*)::bigint, count(DISTINCT a.task_id)::bigint, min(a.ended_at), max(a.ended_at)
FROM /*schema*/attempt AS a
WHERE a.verdict = 'unknown'
    AND a.fingerprint IS NOT NULL
    AND a.ended_at >= $1::float8
    AND a.ended_at < $2::float8
    AND (
        $3::text IS NULL
        OR EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = a.task_id AND t.function = $3)
    )
GROUP BY a.fingerprint

-- name: details
-- The common fields of a group of failures, its functions, and how many of its tasks succeeded.
-- 1 fingerprint or an array of them, 2 and 3 moments as above
SELECT
    given.fingerprint, g.error_class, g.shape, g.frame, sums.functions, sums.succeeded
FROM unnest($1::text[]) AS given (fingerprint)
CROSS JOIN LATERAL (
    SELECT json_agg(DISTINCT t.function)::text AS functions, count(DISTINCT x.task_id)::bigint AS succeeded
    FROM /*schema*/attempt AS a
    INNER JOIN /*schema*/task AS t ON t.id = a.task_id
    LEFT JOIN /*schema*/archive AS x ON x.task_id = a.task_id AND x.state = 'succeeded'
    WHERE a.fingerprint = given.fingerprint AND a.verdict = 'unknown' AND a.ended_at >= $2::float8 AND a.ended_at < $3::float8
) AS sums
LEFT JOIN /*schema*/failure_group AS g ON g.fingerprint = given.fingerprint

-- name: sample
-- The last attempt of each group. 1 to 3 as above
SELECT given.fingerprint, sample.message, sample.task_id
FROM unnest($1::text[]) AS given (fingerprint)
CROSS JOIN LATERAL (
    SELECT a.message, a.task_id
    FROM /*schema*/attempt AS a
    WHERE a.fingerprint = given.fingerprint AND a.verdict = 'unknown' AND a.ended_at >= $2 AND a.ended_at < $3
    ORDER BY a.ended_at DESC, a.task_id DESC
    LIMIT 1
) AS sample
