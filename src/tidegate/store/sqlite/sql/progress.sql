-- progress: keep the last word of a run, if it is the current one.

-- name: keep
-- 1 task id, 2 run, 3 now, 4 done, 5 total or NULL, 6 note. A row comes back if the run is current.
INSERT INTO progress (task_id, run, at, done, total, note)
SELECT task_id, run, ?3, ?4, ?5, ?6
FROM running
WHERE task_id = ?1
    AND run = ?2
ON CONFLICT (task_id) DO UPDATE
SET
    run = excluded.run,
    at = excluded.at,
    done = excluded.done,
    total = excluded.total,
    note = excluded.note
RETURNING 1
