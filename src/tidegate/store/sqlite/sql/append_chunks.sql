-- append_chunks: store what runs emitted, if they are the current runs. The numbers of a task's chunks rise across all
-- its runs: the first chunk of a run follows the last one of the previous run.

-- name: begin
-- If the run is the task's current one, make it the last run of the stream and return its base.
-- 1 task id, 2 run
INSERT INTO stream (task_id, run, base, last)
SELECT task_id, run, 0, 0
FROM running
WHERE task_id = ?1
    AND run = ?2
ON CONFLICT (task_id) DO UPDATE
SET
    base = CASE WHEN run = excluded.run THEN base ELSE last END,
    run = excluded.run
RETURNING base

-- name: insert
-- 1 task id, 2 sequence, 3 run, 4 now, 5 data as bytes
INSERT INTO chunk (task_id, sequence, run, at, data)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task_id, sequence) DO NOTHING

-- name: extend
-- 1 task id, 2 sequence of the newest chunk
UPDATE stream
SET last = max(last, ?2)
WHERE task_id = ?1
