-- append_chunks: store what runs emitted, if they are the current runs. The numbers of a task's chunks rise across all
-- its runs: the first chunk of a run follows the last one of the previous run.

-- name: append
-- Returns the runs that are current. Their rows are locked, so that none ends during the statement.
-- 1 task ids, 2 runs, 3 positions within the run, 4 data as bytes: arrays, one entry a chunk, 5 at
WITH given AS (
    SELECT id, run, position, data
    FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bytea[]) AS g (id, run, position, data)
),
newest AS (
    SELECT id, run, max(position) AS position
    FROM given
    GROUP BY id, run
),
current AS MATERIALIZED (
    SELECT r.task_id, r.run, n.position
    FROM newest AS n
    JOIN /*schema*/running AS r ON r.task_id = n.id
    WHERE r.run = n.run
    ORDER BY r.task_id
    FOR SHARE OF r
),
begun AS (
    INSERT INTO /*schema*/stream AS s (task_id, run, base, last)
    SELECT task_id, run, 0, position
    FROM current
    ON CONFLICT (task_id) DO UPDATE
    SET
        run = excluded.run,
        base = CASE WHEN s.run = excluded.run THEN s.base ELSE s.last END,
        last = greatest(s.last, CASE WHEN s.run = excluded.run THEN s.base ELSE s.last END + excluded.last)
    RETURNING s.task_id, s.run, s.base
),
kept AS (
    INSERT INTO /*schema*/chunk (task_id, sequence, run, at, data)
    SELECT g.id, b.base + g.position, g.run, m.now, g.data
    FROM (SELECT /*schema*/moment($5) AS now) AS m
    CROSS JOIN given AS g
    JOIN begun AS b ON b.task_id = g.id AND b.run = g.run
    ON CONFLICT (task_id, sequence) DO NOTHING
)
SELECT task_id, run
FROM begun
