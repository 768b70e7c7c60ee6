-- 020: the tasks that suspended tasks wait for.
-- Locks: none that matter, because the table is new.
-- Older code runs on, and wakes no task for the end of another.

-- One row for each task that another one, which is suspended, waits for. Removed when the waiting task wakes.
CREATE TABLE task_wait (
    task_id  BLOB NOT NULL,
    child_id BLOB NOT NULL,              -- the task that it waits for
    PRIMARY KEY (task_id, child_id)
) WITHOUT ROWID;
