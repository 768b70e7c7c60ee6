-- commit_batch: take the names of a batch's tasks and make all its tasks visible at once. The cost depends only on
-- the number of tasks that want a name.
-- moves: new -> ready, new -> scheduled

-- name: take_names
-- Take the names of a page of the tasks that want one, in order.
-- 1 batch id, 2 position after which to continue, 3 how many at most, 4 now
WITH wanting AS MATERIALIZED (
    SELECT
        s.position, s.task_id, t.tenant, s.fingerprint, t.idempotency_key, s.key_seconds, t.unique_name,
        s.unique_seconds
    FROM /*schema*/enqueue_batch_task AS s
    JOIN /*schema*/task AS t ON t.id = s.task_id
    WHERE s.batch_id = $1
        AND s.fingerprint IS NOT NULL
        AND s.position > $2
    ORDER BY s.position
    LIMIT $3
)
SELECT w.position, w.task_id, w.idempotency_key, a.holder, a.conflict
FROM wanting AS w
CROSS JOIN LATERAL /*schema*/settle_1(
    $4, w.task_id, w.tenant, w.fingerprint, w.idempotency_key, w.key_seconds, w.unique_name, w.unique_seconds
) AS a

-- name: lose
-- 1 task ids: array of uuid, 2 the tasks that hold their names
WITH lost AS (
    UPDATE /*schema*/enqueue_batch_task AS s
    SET holder = given.holder
    FROM unnest($1::uuid[], $2::uuid[]) AS given (id, holder)
    WHERE s.task_id = given.id
),
dropped AS (
    DELETE FROM /*schema*/payload
    WHERE task_id = ANY($1::uuid[])
)
DELETE FROM /*schema*/task
WHERE id = ANY($1::uuid[])

-- name: commit
-- 1 batch id, 2 now
UPDATE /*schema*/enqueue_batch
SET committed_at = $2
WHERE id = $1

-- name: refuse
-- 1 batch id, 2 key, 3 the task that holds it
UPDATE /*schema*/enqueue_batch
SET
    refused_key = $2,
    refused_for = $3
WHERE id = $1

-- name: losers
-- 1 batch id
SELECT task_id, holder
FROM /*schema*/enqueue_batch_task
WHERE batch_id = $1
    AND holder IS NOT NULL
ORDER BY position
