-- 026: tokens of calls in doubt: what their responses have said about their use so far.
-- Locks: `step` and `doubt` for a moment.
-- Older code runs on, and records none.

ALTER TABLE step ADD COLUMN input_tokens INTEGER;  -- NULL: not known
ALTER TABLE step ADD COLUMN output_tokens INTEGER;
ALTER TABLE doubt ADD COLUMN input_tokens INTEGER;  -- NULL: not known
ALTER TABLE doubt ADD COLUMN output_tokens INTEGER;
