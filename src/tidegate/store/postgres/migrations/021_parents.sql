-- 021: parents: tasks that wait until other tasks have succeeded (`using(after=…)`). Such a task is held in `waiting`, with
-- `held_by` = 'after', as long as it has a row here.
-- Locks: none that matter, because the table is new. Older code runs on: it does not admit such tasks.

CREATE TABLE /*schema*/task_after (
    task_id    uuid NOT NULL,
    parent_id  uuid NOT NULL,
    on_failure text COLLATE "C" NOT NULL CHECK (on_failure IN ('wait', 'cancel', 'run')),  -- if the parent dies or is cancelled
    PRIMARY KEY (task_id, parent_id)
);
CREATE INDEX task_after_parent ON /*schema*/task_after (parent_id, task_id);
