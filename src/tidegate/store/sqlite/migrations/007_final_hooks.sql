-- 007: final_hooks: store with a task what is enqueued when it reaches a final state, so that any process can do it.
-- A worker that does not know this migration enqueues nothing for the tasks that it claims.
-- Locks: none that matter; the new columns have a constant default.

ALTER TABLE task ADD COLUMN on_final TEXT;                              -- JSON of domain.final_hook.FinalHook, or NULL
ALTER TABLE running ADD COLUMN has_on_final INTEGER NOT NULL DEFAULT 0; -- so that finish need not read `task`
