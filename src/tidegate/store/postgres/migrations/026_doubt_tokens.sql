-- 026: tokens of calls in doubt: what their responses have said about their use so far.
-- Locks: `step` and `doubt` for a moment.
-- Older code runs on, and records none.

ALTER TABLE /*schema*/step
    ADD COLUMN input_tokens bigint,
    ADD COLUMN output_tokens bigint;
ALTER TABLE /*schema*/doubt
    ADD COLUMN input_tokens bigint,
    ADD COLUMN output_tokens bigint;
-- NULL: not known
