-- alerts: passes that evaluate alerts, their episodes, the notices to send, mutes, and what only alerts read.

-- name: is_due
-- 1 seconds between two passes, 2 at. The condition is that of `begin`, but nothing is locked.
SELECT NOT EXISTS (
    SELECT 1
    FROM alert_pass
    WHERE next_at > ?2
        AND next_at <= ?2 + 10 * ?1
)

-- name: has_due_notices
-- 1 at
SELECT EXISTS (SELECT 1 FROM alert_notice WHERE next_at <= ?1)

-- name: begin
-- A pass begins only if the last one began long enough ago. A moment too far in the future comes from a clock that was
-- set back.
-- 1 evaluator, 2 seconds until the next pass, 3 at
INSERT INTO alert_pass AS p (id, number, evaluator, started_at, next_at)
VALUES (1, 1, ?1, ?3, ?3 + ?2)
ON CONFLICT (id) DO UPDATE
SET
    number = p.number + 1,
    evaluator = excluded.evaluator,
    started_at = excluded.started_at,
    next_at = excluded.next_at
WHERE p.next_at <= excluded.started_at
    OR p.next_at > excluded.started_at + 10 * ?2
RETURNING number, started_at, usual, usual_at

-- name: end
-- A pass ends only if no later pass has begun. It has read up to its start, so the next pass reads on from there.
-- 1 number of the pass, 2 at, 3 usual values as JSON or NULL to keep them
UPDATE alert_pass
SET
    finished_at = started_at,
    usual = coalesce(?3, usual),
    usual_at = CASE WHEN ?3 IS NULL THEN usual_at ELSE ?2 END
WHERE number = ?1

-- name: last_pass
SELECT number, evaluator, started_at, finished_at
FROM alert_pass

-- name: current
SELECT
    id, rule, subject, state, severity, first_at, opened_at, calm_at, last_at, ended_at, value, threshold, detail,
    notified
FROM alert_episode
WHERE state <> 'ended'
ORDER BY first_at, id

-- name: ended
-- 1 how many at most
SELECT
    id, rule, subject, state, severity, first_at, opened_at, calm_at, last_at, ended_at, value, threshold, detail,
    notified
FROM alert_episode
WHERE state = 'ended'
ORDER BY ended_at DESC, id
LIMIT ?1

-- name: save
-- 1 id, 2 rule, 3 subject, 4 state, 5 severity, 6 to 10 moments, 11 value, 12 threshold, 13 detail, 14 notified
INSERT INTO alert_episode (
    id, rule, subject, state, severity, first_at, opened_at, calm_at, last_at, ended_at, value, threshold, detail,
    notified
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
ON CONFLICT (id) DO UPDATE
SET
    state = excluded.state,
    severity = excluded.severity,
    first_at = excluded.first_at,
    opened_at = excluded.opened_at,
    calm_at = excluded.calm_at,
    last_at = excluded.last_at,
    ended_at = excluded.ended_at,
    value = excluded.value,
    threshold = excluded.threshold,
    detail = excluded.detail,
    notified = excluded.notified

-- name: drop
-- 1 id
DELETE FROM alert_episode
WHERE id = ?1

-- name: old_episodes
-- 1 at, 2 seconds
DELETE FROM alert_episode
WHERE state = 'ended'
    AND ended_at < ?1 - ?2

-- name: old_notices
-- Notices that no process could send are included. 1 at, 2 seconds
DELETE FROM alert_notice
WHERE created_at < ?1 - ?2

-- name: add_notice
-- A notice that exists is kept, because it may have been sent.
-- 1 id, 2 sink, 3 what it is about, 4 kind, 5 body, 6 at
INSERT INTO alert_notice (id, sink, about, kind, body, created_at, next_at, attempts, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 0, '')
ON CONFLICT (id) DO NOTHING

-- name: claim_notices
-- The oldest unsent notice about each episode or task, for each sink.
-- 1 JSON array of sinks, 2 at, 3 seconds after which another process may send them, 4 how many at most
UPDATE alert_notice
SET
    attempts = attempts + 1,
    next_at = ?2 + ?3
WHERE id IN (
    SELECT n.id
    FROM alert_notice AS n
    WHERE n.next_at <= ?2
        AND n.sink IN (SELECT value FROM json_each(?1))
        AND NOT EXISTS (
            SELECT 1
            FROM alert_notice AS earlier
            WHERE earlier.about = n.about
                AND earlier.sink = n.sink
                AND earlier.next_at IS NOT NULL
                AND (earlier.created_at < n.created_at OR (earlier.created_at = n.created_at AND earlier.id < n.id))
        )
    ORDER BY n.next_at, n.id
    LIMIT ?4
)
RETURNING id, sink, about, kind, body, created_at, attempts

-- name: delivered
-- 1 id, 2 at
UPDATE alert_notice
SET
    delivered_at = ?2,
    next_at = NULL,
    error = ''
WHERE id = ?1

-- name: failed
-- 1 id, 2 at, 3 why, 4 seconds until the next attempt, or NULL to give up
UPDATE alert_notice
SET
    next_at = ?2 + ?4,
    error = ?3
WHERE id = ?1
    AND next_at IS NOT NULL

-- name: unsent
SELECT sink, count(*), min(created_at), max(error)
FROM alert_notice
WHERE next_at IS NOT NULL
GROUP BY sink
ORDER BY sink

-- name: mute
-- 1 rule, 2 subject, 3 at, 4 seconds or NULL, 5 who, 6 why
INSERT INTO alert_mute (rule, subject, until_at, muted_at, muted_by, why)
VALUES (?1, ?2, ?3 + ?4, ?3, ?5, ?6)
ON CONFLICT (rule, subject) DO UPDATE
SET
    until_at = excluded.until_at,
    muted_at = excluded.muted_at,
    muted_by = excluded.muted_by,
    why = excluded.why

-- name: unmute
-- 1 rule, 2 subject
DELETE FROM alert_mute
WHERE rule = ?1
    AND subject = ?2

-- name: mutes
-- 1 at
SELECT rule, subject, until_at, muted_at, muted_by, why
FROM alert_mute
WHERE until_at IS NULL
    OR until_at > ?1
ORDER BY rule, subject

-- name: old_mutes
-- 1 at
DELETE FROM alert_mute
WHERE until_at <= ?1

-- name: disable_sink
-- 1 name, 2 hash of its address, 3 at, 4 why
INSERT INTO alert_sink (name, target, disabled_at, why)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE
SET
    target = excluded.target,
    disabled_at = excluded.disabled_at,
    why = excluded.why

-- name: enable_sink
-- 1 name
DELETE FROM alert_sink
WHERE name = ?1

-- name: disabled_sinks
SELECT name, target, disabled_at, why
FROM alert_sink
ORDER BY name

-- name: workers
-- All processes whose rows are kept, which is until a day after their end.
SELECT name, pool, host, expires_at, retired_at, lost
FROM worker

-- name: busy_tasks
-- Unfinished tasks that ran or made calls more often than this. 1 runs, 2 calls, 3 how many at most. The literals let
-- the indexes be used.
SELECT t.task_id, t.queue, t.function, t.run, coalesce(u.calls, 0)
FROM (
    SELECT task_id, queue, function, run FROM ready WHERE run > 20 AND run > ?1
    UNION
    SELECT task_id, queue, function, run FROM running WHERE run > 20 AND run > ?1
    UNION
    SELECT task_id, queue, function, run FROM waiting WHERE run > 20 AND run > ?1
    UNION
    SELECT r.task_id, r.queue, r.function, r.run
    FROM usage AS b CROSS JOIN ready AS r ON r.task_id = b.task_id
    WHERE b.calls > 100 AND b.calls > ?2
    UNION
    SELECT r.task_id, r.queue, r.function, r.run
    FROM usage AS b CROSS JOIN running AS r ON r.task_id = b.task_id
    WHERE b.calls > 100 AND b.calls > ?2
    UNION
    SELECT r.task_id, r.queue, r.function, r.run
    FROM usage AS b CROSS JOIN waiting AS r ON r.task_id = b.task_id
    WHERE b.calls > 100 AND b.calls > ?2
) AS t
LEFT JOIN usage AS u ON u.task_id = t.task_id
ORDER BY t.run DESC, t.task_id
LIMIT ?3

-- name: connections
-- A file has no limit of connections.
SELECT NULL, NULL

-- name: died
-- 1 since when, 2 until when, 3 how many at most, 4 the last moment and 5 the last id of the page before
SELECT task_id, 'dead', queue, function, tenant, run, reason, failed_at
FROM dead
WHERE failed_at > ?1
    AND failed_at <= ?2
    AND (failed_at, task_id) > (?4, ?5)
ORDER BY failed_at, task_id
LIMIT ?3

-- name: finished
-- 1 to 5 as above
SELECT a.task_id, a.state, t.queue, t.function, t.tenant, a.run, '', a.finished_at
FROM archive AS a
CROSS JOIN task AS t ON t.id = a.task_id
WHERE a.finished_at > ?1
    AND a.finished_at <= ?2
    AND (a.finished_at, a.task_id) > (?4, ?5)
ORDER BY a.finished_at, a.task_id
LIMIT ?3
