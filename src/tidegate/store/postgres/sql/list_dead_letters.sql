-- list_dead_letters: list dead letters, latest first, filtered by the fields that people search for.

-- name: moment
-- When a dead letter failed. A letter that was redriven since then still has this moment.
-- 1 task id
SELECT coalesce(
    (SELECT failed_at FROM /*schema*/dead WHERE task_id = $1),
    (SELECT max(ended_at) FROM /*schema*/attempt WHERE task_id = $1 AND outcome = 'dead')
)

-- name: page
-- The ids of the page are read from the index alone, starting at its first row; then the other columns are read.
-- 1 queue, 2 function, 3 tenant, 4 reason, 5 error class, 6 moment before which they failed, 7 labels as a JSON object,
-- 8 fingerprint, 9 moment from which they failed (each NULL for any), 10 failure moment and 11 id after
-- which to continue (NULL to start), 12 how many at most
SELECT
    d.task_id, d.function, d.queue, d.tenant, p.args, p.codec_tag, d.reason, d.error_class, d.message,
    d.failed_at, t.redriven_at, t.redrives, d.run, t.attempts, t.parks, t.crashes, t.losses, t.releases,
    t.rule_attempts, t.labels, d.fingerprint
FROM (
    SELECT d.task_id, d.failed_at
    FROM /*schema*/dead AS d
    WHERE ($1::text IS NULL OR d.queue = $1)
        AND ($2::text IS NULL OR d.function = $2)
        AND ($3::text IS NULL OR d.tenant = $3)
        AND ($4::text IS NULL OR d.reason = $4)
        AND ($5::text IS NULL OR d.error_class = $5)
        AND d.failed_at <= least(coalesce($6::float8, 'infinity'), coalesce($10::float8, 'infinity'))
        AND ($6::float8 IS NULL OR d.failed_at < $6)
        AND (
            $7::jsonb IS NULL
            OR EXISTS (SELECT 1 FROM /*schema*/task AS t WHERE t.id = d.task_id AND t.labels @> $7::jsonb)
        )
        AND ($8::text IS NULL OR d.fingerprint = $8)
        AND d.failed_at >= coalesce($9::float8, 0.0)
        AND ($10::float8 IS NULL OR (d.failed_at, d.task_id) < ($10, $11::uuid))
    ORDER BY d.failed_at DESC, d.task_id DESC
    LIMIT $12
) AS chosen
INNER JOIN /*schema*/dead AS d ON d.task_id = chosen.task_id
INNER JOIN /*schema*/task AS t ON t.id = chosen.task_id
INNER JOIN /*schema*/payload AS p ON p.task_id = chosen.task_id
ORDER BY chosen.failed_at DESC, chosen.task_id DESC
