-- check: what must hold between the tables. Each statement returns a count of offenders.

-- name: homeless
-- Tasks that are in no state.
SELECT count(*)
FROM task AS t
WHERE NOT EXISTS (SELECT 1 FROM ready WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM running WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM waiting WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM archive WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM dead WHERE task_id = t.id)
    AND NOT EXISTS (SELECT 1 FROM staged WHERE task_id = t.id)

-- name: twofold
-- Tasks that are in two states.
SELECT count(*)
FROM (
    SELECT task_id
    FROM (
        SELECT task_id FROM ready
        UNION ALL
        SELECT task_id FROM running
        UNION ALL
        SELECT task_id FROM waiting
        UNION ALL
        SELECT task_id FROM archive
        UNION ALL
        SELECT task_id FROM dead
        UNION ALL
        SELECT task_id FROM staged WHERE holder IS NULL
    )
    GROUP BY task_id
    HAVING count(*) > 1
)

-- name: strays
-- States of tasks that do not exist.
SELECT count(*)
FROM (
    SELECT task_id FROM ready
    UNION ALL
    SELECT task_id FROM running
    UNION ALL
    SELECT task_id FROM waiting
    UNION ALL
    SELECT task_id FROM archive
    UNION ALL
    SELECT task_id FROM dead
    UNION ALL
    SELECT task_id FROM staged WHERE holder IS NULL
) AS placed
WHERE NOT EXISTS (SELECT 1 FROM task AS t WHERE t.id = placed.task_id)

-- name: empty_handed
-- Tasks without arguments.
SELECT count(*)
FROM task AS t
WHERE NOT EXISTS (SELECT 1 FROM payload AS p WHERE p.task_id = t.id)

-- name: unowned
-- Runs of workers that do not exist.
SELECT count(*)
FROM running AS r
WHERE NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.id = r.worker_id)
