-- append_chunks: keep what runs emitted, if they are the current ones. The numbers of a task's chunks rise
-- over all its runs: those of a run follow the last one of the run before it.

-- name: begin
-- Make the run the stream's last, if it is the task's current one; its base comes back if it is.
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

-- name: keep
-- 1 task id, 2 sequence, 3 run, 4 now, 5 data as bytes
INSERT INTO chunk (task_id, sequence, run, at, data)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (task_id, sequence) DO NOTHING

-- name: extend
-- 1 task id, 2 sequence of the newest chunk
UPDATE stream
SET last = max(last, ?2)
WHERE task_id = ?1
