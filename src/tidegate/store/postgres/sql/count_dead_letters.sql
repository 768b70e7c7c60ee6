-- count_dead_letters: count the dead letters that match.

-- name: count
-- 1 queue, 2 function, 3 tenant, 4 reason, 5 error class, 6 moment before which they failed, 7 labels as a JSON object,
-- 8 fingerprint, 9 moment from which they failed (each NULL for any)
SELECT count(*)
FROM /*schema*/dead AS d
WHERE ($1::text IS NULL OR d.queue = $1)
    AND ($2::text IS NULL OR d.function = $2)
    AND ($3::text IS NULL OR d.tenant = $3)
    AND ($4::text IS NULL OR d.reason = $4)
    AND ($5::text IS NULL OR d.error_class = $5)
    AND d.failed_at < coalesce($6::float8, 'infinity')
    AND (
        $7::jsonb IS NULL
        OR EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = d.task_id AND t.labels @> $7::jsonb)
    )
    AND ($8::text IS NULL OR d.fingerprint = $8)
    AND d.failed_at >= coalesce($9::float8, 0.0)

-- name: count_in_doubt
-- Those whose calls may have been processed.
-- 1 queue, 2 function, 3 tenant, 4 reason, 5 error class, 6 moment before which they failed, 7 labels as a JSON object,
-- 8 fingerprint, 9 moment from which they failed (each NULL for any)
SELECT count(*)
FROM /*schema*/dead AS d
WHERE ($1::text IS NULL OR d.queue = $1)
    AND ($2::text IS NULL OR d.function = $2)
    AND ($3::text IS NULL OR d.tenant = $3)
    AND ($4::text IS NULL OR d.reason = $4)
    AND ($5::text IS NULL OR d.error_class = $5)
    AND d.failed_at < coalesce($6::float8, 'infinity')
    AND (
        $7::jsonb IS NULL
        OR EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = d.task_id AND t.labels @> $7::jsonb)
    )
    AND ($8::text IS NULL OR d.fingerprint = $8)
    AND d.failed_at >= coalesce($9::float8, 0.0)
    AND (
        d.reason = 'in_doubt'
        OR EXISTS (SELECT 1 FROM /*schema*/step AS s WHERE s.task_id = d.task_id AND s.state = 'open')
    )
