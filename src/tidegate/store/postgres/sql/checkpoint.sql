-- checkpoint: fold the rows that enqueue and finish appended to `tally` into the roll-up, in short batches. Two
-- processes fold different rows at the same time. Readers add both tables.

-- name: fold
-- 1 how many rows at most
WITH few AS MATERIALIZED (
    SELECT ctid AS row_location
    FROM /*schema*/tally
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM /*schema*/tally
    WHERE ctid = ANY (ARRAY (SELECT row_location FROM few))
    RETURNING
        minute, queue, function, upstream, tenant, enqueued, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, first_final_at
),
folded AS (
    INSERT INTO /*schema*/rollup AS r (
        minute, queue, function, upstream, tenant, enqueued, succeeded, dead, cancelled, retried, released,
        run_seconds, wait_seconds, first_final_at
    )
    SELECT
        minute, queue, function, upstream, tenant, sum(enqueued), sum(succeeded), sum(dead), sum(cancelled),
        sum(retried), sum(released), sum(run_seconds), sum(wait_seconds), min(first_final_at)
    FROM gone
    GROUP BY minute, queue, function, upstream, tenant
    ORDER BY minute, queue, function, upstream, tenant
    ON CONFLICT (minute, queue, function, upstream, tenant) DO UPDATE
    SET
        enqueued = r.enqueued + excluded.enqueued,
        succeeded = r.succeeded + excluded.succeeded,
        dead = r.dead + excluded.dead,
        cancelled = r.cancelled + excluded.cancelled,
        retried = r.retried + excluded.retried,
        released = r.released + excluded.released,
        run_seconds = r.run_seconds + excluded.run_seconds,
        wait_seconds = r.wait_seconds + excluded.wait_seconds,
        first_final_at = least(r.first_final_at, excluded.first_final_at)
)
SELECT count(*)
FROM gone
