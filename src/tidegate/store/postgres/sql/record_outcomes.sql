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
            FROM /*schema*/attempt AS x
            WHERE x.task_id = o.task_id
                AND x.run > o.run
                AND (x.charge = 'attempt' OR x.outcome = 'dead')
        ) AS failed
    FROM /*schema*/operation_task AS o
    LEFT JOIN /*schema*/task AS t ON t.id = o.task_id
    LEFT JOIN /*schema*/archive AS a ON a.task_id = o.task_id
    LEFT JOIN /*schema*/dead AS d ON d.task_id = o.task_id AND d.run > o.run
    WHERE o.operation_id = $1
        AND o.state = 'sent'
) AS letter
WHERE archived IS NOT NULL
    OR dead_run IS NOT NULL
    OR known IS NULL
    OR (failed AND first_try = '')
LIMIT $2

-- name: record
-- 1 task ids, 2 states, 3 how their first attempts ended, 4 of what they died, 5 operation, 6 now
UPDATE /*schema*/operation_task AS o
SET
    state = given.state,
    first_at = CASE WHEN o.first_try = '' AND given.first_try <> '' THEN $6 ELSE o.first_at END,
    first_try = CASE WHEN o.first_try = '' THEN given.first_try ELSE o.first_try END,
    why = given.why,
    was = CASE WHEN given.state = 'sent' THEN o.was END,
    args = CASE WHEN given.state = 'sent' THEN o.args END
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS given (task_id, state, first_try, why)
WHERE o.operation_id = $5
    AND o.task_id = given.task_id
    AND o.state = 'sent'
RETURNING o.task_id, o.state
