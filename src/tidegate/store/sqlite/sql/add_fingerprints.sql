-- add_fingerprints: fingerprints of deaths and of failures without a rule that older code wrote without one.

-- name: has_unnamed
SELECT 1
WHERE EXISTS (SELECT 1 FROM attempt WHERE fingerprint IS NULL AND (outcome = 'dead' OR verdict = 'unknown'))
    OR EXISTS (SELECT 1 FROM dead WHERE fingerprint IS NULL)

-- name: unnamed
-- 1 how many at most
SELECT task_id, run, verdict, reason, error_class, message, traceback
FROM attempt
WHERE fingerprint IS NULL
    AND (outcome = 'dead' OR verdict = 'unknown')
LIMIT ?1

-- name: name_attempts
-- 1 task id, 2 run, 3 fingerprint
UPDATE attempt
SET fingerprint = ?3
WHERE task_id = ?1
    AND run = ?2

-- name: name_letters
-- A dead letter gets the fingerprint of its last run.
-- 1 how many at most
UPDATE dead
SET fingerprint = (SELECT a.fingerprint FROM attempt AS a WHERE a.task_id = dead.task_id AND a.run = dead.run)
WHERE task_id IN (
    SELECT d.task_id
    FROM dead AS d
    CROSS JOIN attempt AS a ON a.task_id = d.task_id AND a.run = d.run AND a.fingerprint IS NOT NULL
    WHERE d.fingerprint IS NULL
    LIMIT ?1
)
