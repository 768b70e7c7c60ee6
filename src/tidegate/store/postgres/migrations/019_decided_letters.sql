-- 019: find the dead letters that died of a doubt, so that they are redriven when every doubt is decided.
-- Locks: `dead` against writes while the index is built, which reads the table once. The index has only those letters. To
-- upgrade without that, build it beforehand with CREATE INDEX CONCURRENTLY IF NOT EXISTS.
-- Older code runs on, and redrives none of them.

CREATE INDEX IF NOT EXISTS dead_in_doubt ON /*schema*/dead (task_id) WHERE reason = 'in_doubt';
