-- read_feed: read the numbers that decide how many letters of an operation may be sent now.

-- name: channels
-- 1 operation, 2 whether only letters of the canary count
SELECT queue, upstream, function, count(*)
FROM /*schema*/operation_task
WHERE operation_id = $1
    AND state = 'chosen'
    AND in_canary >= $2
GROUP BY queue, upstream, function
ORDER BY queue, upstream, function

-- name: untried
-- 1 operation
SELECT o.queue, count(*), count(r.task_id)
FROM /*schema*/operation_task AS o
LEFT JOIN /*schema*/ready AS r ON r.task_id = o.task_id
WHERE o.operation_id = $1
    AND o.state = 'sent'
    AND o.first_try = ''
GROUP BY o.queue

-- name: ready
-- Ready tasks of each queue, counted up to a limit.
-- 1 queues, 2 limit
SELECT given.queue, found.tasks
FROM unnest($1::text[]) AS given (queue)
CROSS JOIN LATERAL (
    SELECT count(*) AS tasks
    FROM (SELECT 1 FROM /*schema*/ready AS r WHERE r.queue = given.queue LIMIT $2) AS counted
) AS found

-- name: canary_tries
-- 1 operation
SELECT function, tenant, first_try
FROM /*schema*/operation_task
WHERE operation_id = $1
    AND in_canary = 1
    AND first_at IS NOT NULL

-- name: canary_pending
-- The letters of the canary whose first attempt has not ended.
-- 1 operation
SELECT count(*)
FROM /*schema*/operation_task
WHERE operation_id = $1
    AND in_canary = 1
    AND state IN ('chosen', 'sent')
    AND first_try = ''

-- name: latest_tries
-- 1 operation, 2 how many at most
SELECT function, tenant, first_try
FROM /*schema*/operation_task
WHERE operation_id = $1
    AND first_at IS NOT NULL
ORDER BY first_at DESC
LIMIT $2
