-- promote: move what is due into the main queue, the longest due first, in short batches; two stewards take
-- different ones. Its rank is the one it was given when it began to wait.
-- moves: scheduled -> ready, retrying -> ready

-- name: promote
-- Read from the index `waiting_due`; what is not due is never looked at.
-- 1 at, 2 how many at most
WITH due AS MATERIALIZED (
    SELECT ctid AS spot
    FROM /*schema*/waiting
    WHERE due_at <= (SELECT /*schema*/moment($1))
        AND state IN ('scheduled', 'retrying')
    ORDER BY due_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM /*schema*/waiting
    WHERE ctid = ANY (ARRAY (SELECT spot FROM due))
    RETURNING task_id, queue, priority, upstream, function, tenant, rank, due_at, run
)
INSERT INTO /*schema*/ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT task_id, queue, priority, upstream, function, tenant, rank, due_at, run
FROM gone
