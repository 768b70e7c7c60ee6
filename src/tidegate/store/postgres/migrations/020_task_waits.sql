-- 020: the tasks that suspended tasks wait for.
-- Locks: none that matter, because the table is new.
-- Older code runs on, and wakes no task for the end of another.

-- One row for each task that another one, which is suspended, waits for. Removed when the waiting task wakes.
CREATE TABLE /*schema*/task_wait (
    task_id  uuid NOT NULL,
    child_id uuid NOT NULL,              -- the task that it waits for
    PRIMARY KEY (task_id, child_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
