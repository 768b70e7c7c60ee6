-- 021: parents: tasks that wait until other tasks have succeeded (`using(after=…)`). Such a task is held in `waiting`, with
-- `held_by` = 'after', as long as it has a row here.
-- Locks: none that matter, because the table is new. Older code runs on: it does not admit such tasks.

CREATE TABLE task_after (
    task_id    BLOB NOT NULL,
    parent_id  BLOB NOT NULL,
    on_failure TEXT NOT NULL CHECK (on_failure IN ('wait', 'cancel', 'run')),  -- if the parent dies or is cancelled
    PRIMARY KEY (task_id, parent_id)
) WITHOUT ROWID;
CREATE INDEX task_after_parent ON task_after (parent_id, task_id);
