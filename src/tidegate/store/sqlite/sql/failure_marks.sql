-- failure_marks: what people said of groups of failures, by fingerprint.

-- name: clear
-- 1 fingerprint, 2 kinds as a JSON array
DELETE FROM failure_mark
WHERE fingerprint = ?1
    AND kind IN (SELECT value FROM json_each(?2))

-- name: mark
-- 1 fingerprint, 2 kind, 3 at, 4 by whom, 5 note, 6 seconds until it ends or NULL
INSERT INTO failure_mark AS m (fingerprint, kind, marked_at, marked_by, note, until_at)
SELECT ?1, ?2, clock.now, ?4, ?5, clock.now + ?6
FROM (SELECT ?3 AS now) AS clock
WHERE true
ON CONFLICT (fingerprint, kind) DO UPDATE
SET
    marked_at = excluded.marked_at,
    marked_by = excluded.marked_by,
    note = excluded.note,
    until_at = excluded.until_at

-- name: marks
-- Each mark comes with the group's last death that is counted by the day.
-- 1 fingerprint or NULL
SELECT
    m.fingerprint, m.kind, m.marked_at, m.marked_by, m.note, m.until_at,
    (SELECT max(d.last_at) FROM death_day AS d WHERE d.fingerprint = m.fingerprint)
FROM failure_mark AS m
WHERE (?1 IS NULL OR m.fingerprint = ?1)
ORDER BY m.fingerprint, m.kind

-- name: latest
-- The last deaths that are not yet counted by the day.
SELECT fingerprint, max(last_at)
FROM death
WHERE span = 0
GROUP BY fingerprint
