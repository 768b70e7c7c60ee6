-- progress: keep the last word of each run that is the current one. Its row is locked meanwhile, so that the run
-- cannot end and begin anew in between.

-- name: keep
-- The fences that are current come back.
-- 1 at, 2 task ids in order, each once, 3 runs, 4 done, 5 totals, each or NULL, 6 notes
WITH current AS MATERIALIZED (
    SELECT given.task_id, given.run, given.done, given.total, given.note
    FROM unnest($2::uuid[], $3::integer[], $4::float8[], $5::float8[], $6::text[])
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
    CROSS JOIN (SELECT /*schema*/moment($1) AS now) AS clock
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
