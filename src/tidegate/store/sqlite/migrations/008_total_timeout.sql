-- 008: total_timeout: a task may have a total timeout of its own.
-- Locks: the file for a moment; rewrites no row.

ALTER TABLE task ADD COLUMN total_timeout_seconds REAL;  -- from the first start; NULL: that of its function
