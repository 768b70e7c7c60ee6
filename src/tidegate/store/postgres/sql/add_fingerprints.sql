-- add_fingerprints: fingerprints of deaths and of failures without a rule that older code wrote without one.

-- name: has_unnamed
SELECT 1
WHERE EXISTS (
        SELECT 1 FROM /*schema*/attempt WHERE fingerprint IS NULL AND (outcome = 'dead' OR verdict = 'unknown')
    )
    OR EXISTS (SELECT 1 FROM /*schema*/dead WHERE fingerprint IS NULL)

-- name: unnamed
-- 1 how many at most
SELECT task_id, run, verdict, reason, error_class, message, traceback
FROM /*schema*/attempt
WHERE fingerprint IS NULL
    AND (outcome = 'dead' OR verdict = 'unknown')
LIMIT $1
FOR UPDATE SKIP LOCKED

-- name: name_attempts
-- Each parameter is an array.
-- 1 task ids, 2 runs, 3 fingerprints
UPDATE /*schema*/attempt AS a
SET fingerprint = given.fingerprint
FROM unnest($1::uuid[], $2::integer[], $3::text[]) AS given (task_id, run, fingerprint)
WHERE a.task_id = given.task_id
    AND a.run = given.run

-- name: name_letters
-- A dead letter gets the fingerprint of its last run.
-- 1 how many at most
UPDATE /*schema*/dead AS letter
SET fingerprint = few.fingerprint
FROM (
    SELECT d.task_id, a.fingerprint
    FROM /*schema*/dead AS d
    INNER JOIN /*schema*/attempt AS a ON a.task_id = d.task_id AND a.run = d.run AND a.fingerprint IS NOT NULL
    WHERE d.fingerprint IS NULL
    LIMIT $1
    FOR UPDATE OF d SKIP LOCKED
) AS few
WHERE letter.task_id = few.task_id
