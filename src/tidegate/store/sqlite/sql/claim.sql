-- claim: move ready tasks to a worker. Read the first tasks channel by channel from the index `ready_channel`,
-- choose, then move exactly the chosen rows. SQLite has one writer at a time, so SKIP LOCKED is not needed: the
-- rows that were read are still there.
-- moves: ready -> running

-- name: retired
-- 1 worker id
SELECT retired_at IS NOT NULL
FROM worker
WHERE id = ?1

-- name: next_channel
-- The first channel after the given one: one step in the index, independent of the number of tasks in between.
-- The comparison includes the largest rank: SQLite seeks to "not less" in all listed columns and then scans. Without
-- the rank, SQLite would scan the whole channel.
-- 1 queue, 2 priority, 3 upstream, 4 function
SELECT queue, priority, upstream, function
FROM ready
WHERE (queue, priority, upstream, function, rank) > (?1, ?2, ?3, ?4, 9e999)
ORDER BY queue, priority, upstream, function
LIMIT 1

-- name: peek
-- The first tasks of one channel, read from the index alone.
-- 1 queue, 2 priority, 3 upstream, 4 function, 5 how many at most
SELECT rank, task_id
FROM ready
WHERE queue = ?1
    AND priority = ?2
    AND upstream = ?3
    AND function = ?4
ORDER BY rank, task_id
LIMIT ?5

-- name: prober
-- The first task of a channel that is not on its last attempt; if there is no such task, the first task.
-- 1 queue, 2 priority, 3 upstream, 4 function, 5 attempts of the function, 6 how many to read
SELECT rank, task_id
FROM (
    SELECT r.rank, r.task_id, t.attempts + 1 >= coalesce(t.max_attempts, ?5) AS is_last
    FROM ready AS r
    CROSS JOIN task AS t ON t.id = r.task_id
    WHERE r.queue = ?1
        AND r.priority = ?2
        AND r.upstream = ?3
        AND r.function = ?4
    ORDER BY r.rank, r.task_id
    LIMIT ?6
)
ORDER BY is_last, rank, task_id
LIMIT 1

-- name: is_on_last_attempt
-- 1 task id, 2 attempts of its function
SELECT attempts + 1 >= coalesce(max_attempts, ?2)
FROM task
WHERE id = ?1

-- name: walk
-- The first tasks by rank across all channels, used when there are too many channels to read each separately.
-- Reads the whole index once.
-- 1 priority or NULL for any, 2 functions: carray of names as bytes, 3 whether any queue matches, 4 queues: carray of
-- names as bytes, 5 closed upstreams: carray of names as bytes, 6 closed functions: carray of names as bytes,
-- 7 paused queues: carray of names as bytes, 8 how many at most
SELECT rank, task_id, upstream, function
FROM ready
WHERE (?1 IS NULL OR priority = ?1)
    AND CAST(function AS BLOB) IN (SELECT value FROM carray(?2))
    AND (?3 OR CAST(queue AS BLOB) IN (SELECT value FROM carray(?4)))
    AND (upstream = '' OR CAST(upstream AS BLOB) NOT IN (SELECT value FROM carray(?5)))
    AND CAST(function AS BLOB) NOT IN (SELECT value FROM carray(?6))
    AND CAST(queue AS BLOB) NOT IN (SELECT value FROM carray(?7))
ORDER BY rank, task_id
LIMIT ?8

-- name: load
-- The chosen tasks, in order, with the fields that the worker gets. `run` is the number of the last claim. `attempt` is
-- read only for tasks that ran before, to find the latest failure.
-- 1 ids: carray of 16-byte ids
SELECT
    r.task_id, r.run, r.function, r.queue, r.priority, r.upstream, r.tenant, p.args, p.codec_tag,
    t.attempts, t.parks, t.crashes, t.losses, t.releases, t.rule_attempts, t.enqueued_at, r.ready_at,
    t.first_started_at, t.parked_at, t.paused_seconds, t.deadline_at, t.timeout_seconds, t.total_timeout_seconds, t.max_attempts,
    t.labels,
    CASE
        WHEN r.run > 0 THEN (
            SELECT json_array(f.verdict, f.reason, f.message, f.run, f.ended_at)
            FROM attempt AS f
            WHERE f.task_id = chosen.value
                AND f.verdict <> ''
            ORDER BY f.run DESC
            LIMIT 1
        )
    END AS last_failure
FROM carray(?1) AS chosen
CROSS JOIN ready AS r ON r.task_id = chosen.value
CROSS JOIN task AS t ON t.id = chosen.value
CROSS JOIN payload AS p ON p.task_id = chosen.value

-- name: start
-- 1 ids: carray of 16-byte ids, 2 worker id, 3 now, 4 crash limit, 5 first wait after a crash in seconds,
-- 6 longest such wait in seconds
INSERT INTO running (
    task_id, run, worker_id, queue, priority, upstream, function, tenant, ready_at, started_at,
    crash_limit, crash_base_seconds, crash_max_seconds, unique_name, has_on_final, since_at
)
SELECT
    r.task_id, r.run + 1, ?2, r.queue, r.priority, r.upstream, r.function, r.tenant, r.ready_at, ?3,
    ?4, ?5, ?6, CASE WHEN t.unique_until_final THEN t.unique_name END,
    t.on_final IS NOT NULL, coalesce(t.redriven_at, t.enqueued_at)
FROM carray(?1) AS chosen
CROSS JOIN ready AS r ON r.task_id = chosen.value
CROSS JOIN task AS t ON t.id = chosen.value

-- name: mark_probes
-- 1 ids: carray of 16-byte ids
UPDATE running
SET probe = 1
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: remove
-- 1 ids: carray of 16-byte ids
DELETE FROM ready
WHERE task_id IN (SELECT value FROM carray(?1))

-- name: resume
-- Resume the total timeout of parked tasks.
-- 1 ids: carray of 16-byte ids, 2 now
UPDATE task
SET
    paused_seconds = paused_seconds + max(0, ?2 - parked_at),
    parked_at = NULL
WHERE id IN (SELECT value FROM carray(?1))
    AND parked_at IS NOT NULL
