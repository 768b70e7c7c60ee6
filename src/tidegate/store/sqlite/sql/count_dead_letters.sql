-- count_dead_letters: count the dead letters that match.

-- name: count
-- 1 queue, 2 function, 3 tenant, 4 reason, 5 error class, 6 moment before which they failed, 7 labels as a JSON object,
-- 8 fingerprint, 9 moment from which they failed (each NULL for any)
SELECT count(*)
FROM dead AS d
WHERE (?1 IS NULL OR d.queue = ?1)
    AND (?2 IS NULL OR d.function = ?2)
    AND (?3 IS NULL OR d.tenant = ?3)
    AND (?4 IS NULL OR d.reason = ?4)
    AND (?5 IS NULL OR d.error_class = ?5)
    AND d.failed_at < coalesce(?6, 9e999)
    AND (?8 IS NULL OR d.fingerprint = ?8)
    AND d.failed_at >= coalesce(?9, 0.0)
    AND (
        ?7 IS NULL
        OR NOT EXISTS (
            SELECT 1
            FROM json_each(?7) AS want
            WHERE NOT EXISTS (
                SELECT 1
                FROM task AS t, json_each(t.labels) AS have
                WHERE t.id = d.task_id AND have.key = want.key AND have.value = want.value
            )
        )
    )

-- name: count_in_doubt
-- Those whose calls may have been processed.
-- 1 queue, 2 function, 3 tenant, 4 reason, 5 error class, 6 moment before which they failed, 7 labels as a JSON object,
-- 8 fingerprint, 9 moment from which they failed (each NULL for any)
SELECT count(*)
FROM dead AS d
WHERE (?1 IS NULL OR d.queue = ?1)
    AND (?2 IS NULL OR d.function = ?2)
    AND (?3 IS NULL OR d.tenant = ?3)
    AND (?4 IS NULL OR d.reason = ?4)
    AND (?5 IS NULL OR d.error_class = ?5)
    AND d.failed_at < coalesce(?6, 9e999)
    AND (?8 IS NULL OR d.fingerprint = ?8)
    AND d.failed_at >= coalesce(?9, 0.0)
    AND (
        ?7 IS NULL
        OR NOT EXISTS (
            SELECT 1
            FROM json_each(?7) AS want
            WHERE NOT EXISTS (
                SELECT 1
                FROM task AS t, json_each(t.labels) AS have
                WHERE t.id = d.task_id AND have.key = want.key AND have.value = want.value
            )
        )
    )
    AND (
        d.reason = 'in_doubt'
        OR EXISTS (SELECT 1 FROM step AS s WHERE s.task_id = d.task_id AND s.state = 'open')
    )
