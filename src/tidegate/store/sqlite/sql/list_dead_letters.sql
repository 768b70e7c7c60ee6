-- list_dead_letters: list dead letters, latest first, filtered by the fields that people search for.

-- name: moment
-- When a dead letter failed. A letter that was redriven since then still has this moment.
-- 1 task id
SELECT coalesce(
    (SELECT failed_at FROM dead WHERE task_id = ?1),
    (SELECT max(ended_at) FROM attempt WHERE task_id = ?1 AND outcome = 'dead')
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
    FROM dead AS d
    WHERE (?1 IS NULL OR d.queue = ?1)
        AND (?2 IS NULL OR d.function = ?2)
        AND (?3 IS NULL OR d.tenant = ?3)
        AND (?4 IS NULL OR d.reason = ?4)
        AND (?5 IS NULL OR d.error_class = ?5)
        AND d.failed_at <= min(coalesce(?6, 9e999), coalesce(?10, 9e999))
        AND (?6 IS NULL OR d.failed_at < ?6)
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
        AND (?10 IS NULL OR (d.failed_at, d.task_id) < (?10, ?11))
    ORDER BY d.failed_at DESC, d.task_id DESC
    LIMIT ?12
) AS chosen
CROSS JOIN dead AS d ON d.task_id = chosen.task_id
CROSS JOIN task AS t ON t.id = chosen.task_id
CROSS JOIN payload AS p ON p.task_id = chosen.task_id
ORDER BY chosen.failed_at DESC, chosen.task_id DESC
