-- read_chunks: read parts of the streams of some tasks.

-- name: after
-- 1 task ids, 2 sequences after which to continue: arrays, 3 how many per task at most, 4 total bytes at which to stop,
-- after the chunk that reaches them. Lengths are read first, so that large data is only read if it is returned.
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
