-- 006: worker_application: which application a pool process runs, so that `status` and `tasks why` can say which
-- functions the live workers declare.
-- Locks: the file for a moment; a constant default rewrites no row. Safe beside workers of the version before, which do not
-- name the column: theirs stay empty, and their functions count as unknown.

ALTER TABLE worker ADD COLUMN application TEXT NOT NULL DEFAULT '';
