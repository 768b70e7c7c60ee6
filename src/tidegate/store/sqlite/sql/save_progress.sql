-- save_progress: store the latest progress of a run, if it is the current one.

-- name: save
-- Returns the fence if the run is current.
-- 1 task id, 2 run, 3 done, 4 total or NULL, 5 note, 6 at
INSERT INTO progress (task_id, run, at, done, total, note)
SELECT task_id, run, ?6, ?3, ?4, ?5
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
RETURNING task_id, run
