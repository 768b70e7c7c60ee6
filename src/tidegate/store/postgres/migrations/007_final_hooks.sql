-- 007: final_hooks: store with a task what is enqueued when it reaches a final state, so that any process can do it.
-- A worker that does not know this migration enqueues nothing for the tasks that it claims.
-- Locks: `task` and `running` for a moment; the new columns have a constant default.

ALTER TABLE /*schema*/task ADD COLUMN on_final text COLLATE "C";          -- JSON of domain.final_hook.FinalHook, or NULL
ALTER TABLE /*schema*/running ADD COLUMN has_on_final boolean NOT NULL DEFAULT false;  -- so finish need not read `task`
