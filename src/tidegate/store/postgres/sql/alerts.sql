-- alerts: passes that evaluate alerts, their episodes, the notices to send, mutes, and what only alerts read.

-- name: is_due
-- 1 seconds between two passes, 2 at. The condition is that of `begin`, but nothing is locked.
SELECT NOT EXISTS (
    SELECT 1
    FROM /*schema*/alert_pass
    WHERE next_at > /*schema*/moment($2)
        AND next_at <= /*schema*/moment($2) + 10 * $1::float8
)

-- name: has_due_notices
-- 1 at
SELECT EXISTS (SELECT 1 FROM /*schema*/alert_notice WHERE next_at <= (SELECT /*schema*/moment($1)))

-- name: begin
-- A pass begins only if the last one began long enough ago. A moment too far in the future comes from a clock that was
-- set back.
-- 1 evaluator, 2 seconds until the next pass, 3 at
INSERT INTO /*schema*/alert_pass AS p (id, number, evaluator, started_at, next_at)
SELECT 1, 1, $1, clock.at, clock.at + $2::float8
FROM (SELECT /*schema*/moment($3) AS at) AS clock
ON CONFLICT (id) DO UPDATE
SET
    number = p.number + 1,
    evaluator = excluded.evaluator,
    started_at = excluded.started_at,
    next_at = excluded.next_at
WHERE p.next_at <= excluded.started_at
    OR p.next_at > excluded.started_at + 10 * $2::float8
RETURNING p.number, p.started_at, p.usual, p.usual_at

-- name: end
-- A pass ends only if no later pass has begun. It has read up to its start, so the next pass reads on from there.
-- 1 number of the pass, 2 at, 3 usual values as JSON or NULL to keep them
UPDATE /*schema*/alert_pass
SET
    finished_at = started_at,
    usual = coalesce($3::text, usual),
    usual_at = CASE WHEN $3::text IS NULL THEN usual_at ELSE /*schema*/moment($2) END
WHERE number = $1

-- name: last_pass
SELECT number, evaluator, started_at, finished_at
FROM /*schema*/alert_pass

-- name: current
SELECT
    id, rule, subject, state, severity, first_at, opened_at, calm_at, last_at, ended_at, value, threshold, detail,
    notified
FROM /*schema*/alert_episode
WHERE state <> 'ended'
ORDER BY first_at, id

-- name: ended
-- 1 how many at most
SELECT
    id, rule, subject, state, severity, first_at, opened_at, calm_at, last_at, ended_at, value, threshold, detail,
    notified
FROM /*schema*/alert_episode
WHERE state = 'ended'
ORDER BY ended_at DESC, id
LIMIT $1

-- name: save
-- Arrays: 1 ids, 2 rules, 3 subjects, 4 states, 5 severities, 6 to 10 moments, 11 values, 12 thresholds, 13 details,
-- 14 notified
INSERT INTO /*schema*/alert_episode (
    id, rule, subject, state, severity, first_at, opened_at, calm_at, last_at, ended_at, value, threshold, detail,
    notified
)
SELECT *
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::float8[], $8::float8[], $9::float8[],
    $10::float8[], $11::float8[], $12::float8[], $13::text[], $14::smallint[]
)
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
-- Arrays: 1 ids
DELETE FROM /*schema*/alert_episode
WHERE id = ANY($1::text[])

-- name: old_episodes
-- 1 at, 2 seconds
DELETE FROM /*schema*/alert_episode
WHERE state = 'ended'
    AND ended_at < /*schema*/moment($1) - $2::float8

-- name: old_notices
-- Notices that no process could send are included. 1 at, 2 seconds
DELETE FROM /*schema*/alert_notice
WHERE created_at < /*schema*/moment($1) - $2::float8

-- name: add_notice
-- A notice that exists is kept, because it may have been sent.
-- Arrays: 1 ids, 2 sinks, 3 what they are about, 4 kinds, 5 bodies; 6 at
INSERT INTO /*schema*/alert_notice (id, sink, about, kind, body, created_at, next_at, attempts, error)
SELECT given.id, given.sink, given.about, given.kind, given.body, clock.at, clock.at, 0, ''
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS given (id, sink, about, kind, body)
CROSS JOIN (SELECT /*schema*/moment($6) AS at) AS clock
ON CONFLICT (id) DO NOTHING

-- name: claim_notices
-- The oldest unsent notice about each episode or task, for each sink.
-- 1 JSON array of sinks, 2 at, 3 seconds after which another process may send them, 4 how many at most
UPDATE /*schema*/alert_notice AS claimed
SET
    attempts = claimed.attempts + 1,
    next_at = /*schema*/moment($2) + $3::float8
WHERE claimed.id = ANY(ARRAY(
    SELECT n.id
    FROM /*schema*/alert_notice AS n
    WHERE n.next_at <= (SELECT /*schema*/moment($2))
        AND n.sink = ANY(ARRAY(SELECT json_array_elements_text($1::json)))
        AND NOT EXISTS (
            SELECT 1
            FROM /*schema*/alert_notice AS earlier
            WHERE earlier.about = n.about
                AND earlier.sink = n.sink
                AND earlier.next_at IS NOT NULL
                AND (earlier.created_at < n.created_at OR (earlier.created_at = n.created_at AND earlier.id < n.id))
        )
    ORDER BY n.next_at, n.id
    LIMIT $4
    FOR UPDATE OF n SKIP LOCKED
))
RETURNING claimed.id, claimed.sink, claimed.about, claimed.kind, claimed.body, claimed.created_at, claimed.attempts

-- name: delivered
-- 1 id, 2 at
UPDATE /*schema*/alert_notice
SET
    delivered_at = /*schema*/moment($2),
    next_at = NULL,
    error = ''
WHERE id = $1

-- name: failed
-- 1 id, 2 at, 3 why, 4 seconds until the next attempt, or NULL to give up
UPDATE /*schema*/alert_notice
SET
    next_at = /*schema*/moment($2) + $4::float8,
    error = $3
WHERE id = $1
    AND next_at IS NOT NULL

-- name: unsent
SELECT sink, count(*), min(created_at), max(error)
FROM /*schema*/alert_notice
WHERE next_at IS NOT NULL
GROUP BY sink
ORDER BY sink

-- name: mute
-- 1 rule, 2 subject, 3 at, 4 seconds or NULL, 5 who, 6 why
INSERT INTO /*schema*/alert_mute (rule, subject, until_at, muted_at, muted_by, why)
SELECT $1, $2, clock.at + $4::float8, clock.at, $5, $6
FROM (SELECT /*schema*/moment($3) AS at) AS clock
ON CONFLICT (rule, subject) DO UPDATE
SET
    until_at = excluded.until_at,
    muted_at = excluded.muted_at,
    muted_by = excluded.muted_by,
    why = excluded.why

-- name: unmute
-- 1 rule, 2 subject
DELETE FROM /*schema*/alert_mute
WHERE rule = $1
    AND subject = $2

-- name: mutes
-- 1 at
SELECT rule, subject, until_at, muted_at, muted_by, why
FROM /*schema*/alert_mute
WHERE until_at IS NULL
    OR until_at > /*schema*/moment($1)
ORDER BY rule, subject

-- name: old_mutes
-- 1 at
DELETE FROM /*schema*/alert_mute
WHERE until_at <= /*schema*/moment($1)

-- name: disable_sink
-- 1 name, 2 hash of its address, 3 at, 4 why
INSERT INTO /*schema*/alert_sink (name, target, disabled_at, why)
VALUES ($1, $2, /*schema*/moment($3), $4)
ON CONFLICT (name) DO UPDATE
SET
    target = excluded.target,
    disabled_at = excluded.disabled_at,
    why = excluded.why

-- name: enable_sink
-- 1 name
DELETE FROM /*schema*/alert_sink
WHERE name = $1

-- name: disabled_sinks
SELECT name, target, disabled_at, why
FROM /*schema*/alert_sink
ORDER BY name

-- name: workers
-- All processes whose rows are kept, which is until a day after their end.
SELECT name, pool, host, expires_at, retired_at, lost
FROM /*schema*/worker

-- name: busy_tasks
-- Unfinished tasks that ran or made calls more often than this. 1 runs, 2 calls, 3 how many at most. The literals let
-- the indexes be used.
SELECT t.task_id, t.queue, t.function, t.run, coalesce(u.calls, 0)
FROM (
    SELECT task_id, queue, function, run FROM /*schema*/ready WHERE run > 20 AND run > $1
    UNION
    SELECT task_id, queue, function, run FROM /*schema*/running WHERE run > 20 AND run > $1
    UNION
    SELECT task_id, queue, function, run FROM /*schema*/waiting WHERE run > 20 AND run > $1
    UNION
    SELECT r.task_id, r.queue, r.function, r.run
    FROM /*schema*/usage AS b JOIN /*schema*/ready AS r ON r.task_id = b.task_id
    WHERE b.calls > 100 AND b.calls > $2
    UNION
    SELECT r.task_id, r.queue, r.function, r.run
    FROM /*schema*/usage AS b JOIN /*schema*/running AS r ON r.task_id = b.task_id
    WHERE b.calls > 100 AND b.calls > $2
    UNION
    SELECT r.task_id, r.queue, r.function, r.run
    FROM /*schema*/usage AS b JOIN /*schema*/waiting AS r ON r.task_id = b.task_id
    WHERE b.calls > 100 AND b.calls > $2
) AS t
LEFT JOIN /*schema*/usage AS u ON u.task_id = t.task_id
ORDER BY t.run DESC, t.task_id
LIMIT $3

-- name: connections
-- Connections of all clients of the server, and how many they may have in all.
SELECT
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer

-- name: died
-- 1 since when, 2 until when, 3 how many at most, 4 the last moment and 5 the last id of the page before
SELECT task_id, 'dead', queue, function, tenant, run, reason, failed_at
FROM /*schema*/dead
WHERE failed_at > $1::float8
    AND failed_at <= $2::float8
    AND (failed_at, task_id) > ($4::float8, $5::uuid)
ORDER BY failed_at, task_id
LIMIT $3

-- name: finished
-- 1 to 5 as above
SELECT a.task_id, a.state, t.queue, t.function, t.tenant, a.run, '', a.finished_at
FROM /*schema*/archive AS a
JOIN /*schema*/task AS t ON t.id = a.task_id
WHERE a.finished_at > $1::float8
    AND a.finished_at <= $2::float8
    AND (a.finished_at, a.task_id) > ($4::float8, $5::uuid)
ORDER BY a.finished_at, a.task_id
LIMIT $3
