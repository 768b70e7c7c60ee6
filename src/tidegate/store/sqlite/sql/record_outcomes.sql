-- record_outcomes: find the outcomes of the letters that an operation sent.

-- name: changed
-- Letters that got an outcome, or whose first attempt ended, since the last check.
-- 1 operation, 2 how many at most
SELECT task_id, first_try, archived, archived_run, dead_run, reason, known, failed
FROM (
    SELECT
        o.task_id, o.first_try, a.state AS archived, a.run AS archived_run, d.run AS dead_run, d.reason AS reason,
        t.id AS known,
        EXISTS (
            SELECT 1
            FROM attempt AS x
            WHERE x.task_id = o.task_id
                AND x.run > o.run
                AND (x.charge = 'attempt' OR x.outcome = 'dead')
        ) AS failed
    FROM operation_task AS o
    LEFT JOIN task AS t ON t.id = o.task_id
    LEFT JOIN archive AS a ON a.task_id = o.task_id
    LEFT JOIN dead AS d ON d.task_id = o.task_id AND d.run > o.run
    WHERE o.operation_id = ?1
        AND o.state = 'sent'
) AS letter
WHERE archived IS NOT NULL
    OR dead_run IS NOT NULL
    OR known IS NULL
    OR (failed AND first_try = '')
LIMIT ?2

-- name: record
-- 1 task id, 2 state, 3 how the first attempt ended, 4 of what it died, 5 operation, 6 now
UPDATE operation_task
SET
    state = ?2,
    first_at = CASE WHEN first_try = '' AND ?3 <> '' THEN ?6 ELSE first_at END,
    first_try = CASE WHEN first_try = '' THEN ?3 ELSE first_try END,
    why = ?4,
    was = CASE WHEN ?2 = 'sent' THEN was END,
    args = CASE WHEN ?2 = 'sent' THEN args END
WHERE operation_id = ?5
    AND task_id = ?1
    AND state = 'sent'
RETURNING task_id, state
