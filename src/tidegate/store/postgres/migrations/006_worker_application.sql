-- 006: worker_application: which application a pool process runs, so that `status` and `tasks why` can say which
-- functions the live workers declare.
-- Locks: the table for a moment; a constant default rewrites no row. Safe beside workers of the version before, which do not
-- name the column: theirs stay empty, and their functions count as unknown.

ALTER TABLE /*schema*/worker ADD COLUMN application text NOT NULL DEFAULT '';
