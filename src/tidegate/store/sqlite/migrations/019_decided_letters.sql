-- 019: find the dead letters that died of a doubt, so that they are redriven when every doubt is decided.
-- Locks: none that matter: the new index has only those letters.
-- Older code runs on, and redrives none of them.

CREATE INDEX dead_in_doubt ON dead (task_id) WHERE reason = 'in_doubt';
