-- chunks: parts of some tasks' streams.

-- name: after
-- 1 task ids, 2 sequences after which to go on: arrays, 3 how many a task at most
SELECT given.id, c.sequence, c.run, c.at, c.data
FROM unnest($1::uuid[], $2::bigint[]) AS given (id, sequence)
CROSS JOIN LATERAL (
    SELECT x.sequence, x.run, x.at, x.data
    FROM /*schema*/chunk AS x
    WHERE x.task_id = given.id
        AND x.sequence > given.sequence
    ORDER BY x.sequence
    LIMIT $3
) AS c
