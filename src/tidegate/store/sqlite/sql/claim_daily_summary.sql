-- claim_daily_summary: let exactly one process report a day.

-- name: claim
-- 1 day, 2 at
INSERT INTO daily_summary (day, reported_at)
VALUES (?1, ?2)
ON CONFLICT DO NOTHING

-- name: old
-- 1 day before which they are deleted
DELETE FROM daily_summary
WHERE day < ?1

-- name: reported
-- 1 day
SELECT 1
FROM daily_summary
WHERE day = ?1
