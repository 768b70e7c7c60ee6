-- 007: usage: what the calls of a task consumed, so that `tasks show`, the API and later sums of money can say it.
-- Locks: none to speak of; a new table. Safe beside workers of the version before, which do not know it: the runs
-- that they finish add nothing, and rows of tasks that they delete are left behind.

-- One row for each task with a call whose answer stated what it used, added up over all its runs.
CREATE TABLE /*schema*/usage (
    task_id            uuid PRIMARY KEY,
    calls              bigint NOT NULL, -- those whose answers stated it
    input_tokens       bigint NOT NULL, -- all that was read
    cached_tokens      bigint NOT NULL, -- of the input, from a cache
    cache_write_tokens bigint NOT NULL, -- of the input, written to a cache
    output_tokens      bigint NOT NULL, -- all that was written
    reasoning_tokens   bigint NOT NULL  -- of the output, thought rather than said
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02);
