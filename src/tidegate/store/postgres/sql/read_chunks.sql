-- read_chunks: parts of some tasks' streams.

-- name: after
-- 1 task ids, 2 sequences after which to go on: arrays, 3 how many a task at most, 4 bytes of all at most:
-- none follows the one that reaches them. Only lengths are looked at before, so large data that is not
-- returned is not read.
SELECT id, sequence, run, at, data
FROM (
    SELECT given.id, given.position, c.sequence, c.run, c.at, c.data,
        sum(octet_length(c.data)) OVER (ORDER BY given.position, c.sequence) - octet_length(c.data) AS bytes_before
    FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS given (id, sequence, position)
    CROSS JOIN LATERAL (
        SELECT x.sequence, x.run, x.at, x.data
        FROM /*schema*/chunk AS x
        WHERE x.task_id = given.id
            AND x.sequence > given.sequence
        ORDER BY x.sequence
        LIMIT $3
    ) AS c
) AS counted
WHERE bytes_before < $4
ORDER BY position, sequence
