-- save_progress: store the latest progress of each run that is the current one. Its row is locked, so that the run
-- cannot end and the next one begin in between.

-- name: save
-- Returns the fences that are current.
-- Arrays: 1 task ids in order, each once, 2 runs, 3 done, 4 totals, each or NULL, 5 notes; 6 at
WITH current AS MATERIALIZED (
    SELECT given.task_id, given.run, given.done, given.total, given.note
    FROM unnest($1::uuid[], $2::integer[], $3::float8[], $4::float8[], $5::text[])
        AS given (task_id, run, done, total, note)
    CROSS JOIN LATERAL (
        SELECT 1
        FROM /*schema*/running AS x
        WHERE x.task_id = given.task_id
            AND x.run = given.run
        FOR KEY SHARE
    ) AS r
),
kept AS (
    INSERT INTO /*schema*/progress (task_id, run, at, done, total, note)
    SELECT c.task_id, c.run, clock.now, c.done, c.total, c.note
    FROM current AS c
    CROSS JOIN (SELECT /*schema*/moment($6) AS now) AS clock
    ON CONFLICT (task_id) DO UPDATE
    SET
        run = excluded.run,
        at = excluded.at,
        done = excluded.done,
        total = excluded.total,
        note = excluded.note
)
SELECT task_id, run
FROM current
