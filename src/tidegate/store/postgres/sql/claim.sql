-- claim: move ready tasks to a worker. `peek` finds without a lock how many of the first tasks each channel has;
-- the caller shares the slots between the priorities; `take` locks that many tasks of each channel and moves them.
-- Rows that another claim has locked are skipped.
-- moves: ready -> running

-- shared: moving
head AS MATERIALIZED (
    SELECT
        r.row_location, r.task_id, r.queue, r.priority, r.upstream, r.function, r.tenant, r.rank, r.ready_at, r.run,
        channel.position, channel.crash_limit, channel.crash_base, channel.crash_cap
    FROM holder
    CROSS JOIN unnest(
        $3::text[], $4::smallint[], $5::text[], $6::text[], $7::bigint[], $8::float8[], $9::integer[],
        $10::integer[], $11::float8[], $12::float8[], $14::uuid[]
    ) AS channel (
        queue, priority, upstream, function, position, bound, tasks, crash_limit, crash_base, crash_cap, only_id
    )
    CROSS JOIN LATERAL (
        SELECT
            x.ctid AS row_location, x.task_id, x.queue, x.priority, x.upstream, x.function, x.tenant, x.rank, x.ready_at,
            x.run
        FROM /*schema*/ready AS x
        WHERE x.queue = channel.queue
            AND x.priority = channel.priority
            AND x.upstream = channel.upstream
            AND x.function = channel.function
            AND x.rank >= channel.bound
            AND nullif(channel.only_id IS NULL OR x.task_id = channel.only_id, false) IS NOT NULL
        ORDER BY x.rank, x.task_id
        LIMIT channel.tasks
        FOR UPDATE SKIP LOCKED
    ) AS r
),
gone AS (
    DELETE FROM /*schema*/ready
    WHERE ctid = ANY (ARRAY (SELECT row_location FROM head))
    RETURNING task_id
),
chosen AS MATERIALIZED (
    SELECT
        h.task_id, h.run, h.function, h.queue, h.priority, h.upstream, h.tenant, p.args, p.codec_tag,
        t.attempts, t.parks, t.crashes, t.losses, t.releases, t.rule_attempts, t.enqueued_at, h.ready_at,
        t.first_started_at, t.parked_at, t.paused_seconds, t.deadline_at, t.timeout_seconds, t.total_timeout_seconds, t.max_attempts,
        t.labels, t.unique_name, t.has_on_final, t.since_at, h.rank, h.position, h.crash_limit, h.crash_base, h.crash_cap,
        CASE
            WHEN h.run > 0 THEN (
                SELECT json_build_array(x.verdict, x.reason, x.message, x.run, x.ended_at)::text
                FROM /*schema*/attempt AS x
                WHERE x.task_id = h.task_id
                    AND x.verdict <> ''
                ORDER BY x.run DESC
                LIMIT 1
            )
        END AS last_failure
    FROM head AS h
    CROSS JOIN LATERAL (
        SELECT
            x.attempts, x.parks, x.crashes, x.losses, x.releases, x.rule_attempts, x.enqueued_at,
            x.first_started_at, x.parked_at, x.paused_seconds, x.deadline_at, x.timeout_seconds, x.total_timeout_seconds, x.max_attempts,
            x.labels, CASE WHEN x.unique_until_final THEN x.unique_name END AS unique_name,
            x.on_final IS NOT NULL AS has_on_final, coalesce(x.redriven_at, x.enqueued_at) AS since_at
        FROM /*schema*/task AS x
        WHERE x.id = h.task_id
        LIMIT 1
    ) AS t
    CROSS JOIN LATERAL (
        SELECT x.args, x.codec_tag
        FROM /*schema*/payload AS x
        WHERE x.task_id = h.task_id
        LIMIT 1
    ) AS p
    WHERE (h.task_id IN (SELECT task_id FROM gone)) IS TRUE
),
started AS (
    INSERT INTO /*schema*/running (
        task_id, run, worker_id, queue, priority, upstream, function, tenant, ready_at, started_at, crash_limit,
        crash_base_seconds, crash_max_seconds, unique_name, has_on_final, since_at
    )
    SELECT
        c.task_id, c.run + 1, holder.id, c.queue, c.priority, c.upstream, c.function, c.tenant, c.ready_at,
        holder.now, c.crash_limit, c.crash_base, c.crash_cap, c.unique_name, c.has_on_final,
        c.since_at
    FROM chosen AS c
    CROSS JOIN holder
),
resumed AS (
    -- Resume the total timeout of parked tasks.
    UPDATE /*schema*/task AS t
    SET
        paused_seconds = t.paused_seconds + greatest(0, holder.now - t.parked_at),
        parked_at = NULL
    FROM holder
    WHERE t.id = ANY (ARRAY (SELECT task_id FROM chosen WHERE parked_at IS NOT NULL))
        AND t.parked_at IS NOT NULL
)

-- shared: taken
SELECT
    c.task_id, c.run, c.function, c.queue, c.priority, c.upstream, c.tenant, c.args, c.codec_tag, c.attempts,
    c.parks, c.crashes, c.losses, c.releases, c.rule_attempts, c.enqueued_at, c.ready_at, c.first_started_at,
    c.parked_at, c.paused_seconds, c.deadline_at, c.timeout_seconds, c.total_timeout_seconds, c.max_attempts, c.labels,
    c.last_failure, holder.now
FROM chosen AS c
CROSS JOIN holder
ORDER BY c.priority, c.position, c.rank, c.task_id

-- name: peek
-- Every channel of the served queues whose function is known. It steps through the index `ready_channel` from the
-- first task of one channel to the first of the next, so that a channel costs one step, independent of its size.
-- If channels are given, only those are read, each from its bound on, so that entries of removed rows are not read
-- again. `positions` are the positions of the channel's first tasks among all tasks of the priority. A single channel
-- needs no comparison, so only its first task is read, unless an upstream's gate must charge the tasks. At least one row is returned; `queue` is NULL if there is no
-- channel. `entries` is the number of index entries read, including those of removed rows. `checked` is what a claim
-- must check: 0 nothing, 1 gates, 2 gates and pauses. A store without gates and pauses has no extra round trip.
-- 1 worker id, 2 queues in listed order, NULL for any, 3 functions, 4 how many at most, 5 whether in listed order,
-- 6 channels at most, then of given channels: 7 queues, 8 priorities, 9 upstreams, 10 functions, 11 positions,
-- 12 bounds on rank (each NULL to scan for channels), 13 upstreams whose tasks may not be claimed, 14 paused queues
WITH RECURSIVE before AS MATERIALIZED (
    SELECT pg_stat_get_xact_tuples_returned('/*schema*/ready_channel'::regclass) AS entries
),
served AS (
    SELECT listed.queue AS first, listed.queue AS last, listed.position
    FROM before
    CROSS JOIN unnest($2::text[]) WITH ORDINALITY AS listed (queue, position)
    WHERE $7::text[] IS NULL
    UNION ALL
    SELECT '', repeat(chr(1114111), 100), 0
    FROM before
    WHERE $2::text[] IS NULL AND $7::text[] IS NULL
),
found AS (
    SELECT head.queue, head.priority, head.upstream, head.function, head.rank, s.last, s.position
    FROM served AS s
    CROSS JOIN LATERAL (
        SELECT r.queue, r.priority, r.upstream, r.function, r.rank
        FROM /*schema*/ready AS r
        WHERE r.queue >= s.first
            AND r.queue <= s.last
        ORDER BY r.queue, r.priority, r.upstream, r.function, r.rank, r.task_id
        LIMIT 1
    ) AS head
    UNION ALL
    SELECT head.queue, head.priority, head.upstream, head.function, head.rank, f.last, f.position
    FROM found AS f
    CROSS JOIN LATERAL (
        SELECT r.queue, r.priority, r.upstream, r.function, r.rank
        FROM /*schema*/ready AS r
        WHERE (r.queue, r.priority, r.upstream, r.function) > (f.queue, f.priority, f.upstream, f.function)
            AND r.queue <= f.last
        ORDER BY r.queue, r.priority, r.upstream, r.function, r.rank, r.task_id
        LIMIT 1
    ) AS head
),
channel AS MATERIALIZED (
    SELECT
        row_number() OVER () AS number,
        count(*) OVER () AS channels,
        l.queue, l.priority, l.upstream, l.function, l.position, l.bound
    FROM (
        SELECT few.queue, few.priority, few.upstream, few.function, few.position, few.rank AS bound
        FROM (SELECT queue, priority, upstream, function, position, rank FROM found LIMIT $6) AS few
        UNION ALL
        SELECT given.queue, given.priority, given.upstream, given.function, given.position, given.bound
        FROM before
        CROSS JOIN unnest($7::text[], $8::smallint[], $9::text[], $10::text[], $11::bigint[], $12::float8[])
            AS given (queue, priority, upstream, function, position, bound)
    ) AS l
    WHERE l.function = ANY ($3::text[])
        AND NOT l.upstream = ANY ($13::text[])
        AND NOT l.queue = ANY ($14::text[])
),
head AS (
    SELECT
        l.number, h.rank,
        row_number() OVER (
            PARTITION BY l.priority
            ORDER BY CASE WHEN $5 THEN l.position END, h.rank, h.task_id
        ) AS position
    FROM channel AS l
    CROSS JOIN LATERAL (
        SELECT r.rank, r.task_id
        FROM /*schema*/ready AS r
        WHERE r.queue = l.queue
            AND r.priority = l.priority
            AND r.upstream = l.upstream
            AND r.function = l.function
            AND r.rank >= l.bound
        ORDER BY r.rank, r.task_id
        LIMIT CASE WHEN l.channels = 1 AND l.upstream = '' THEN 1 ELSE $4 END
    ) AS h
),
peeked AS MATERIALIZED (
    SELECT
        number, min(rank) AS first_rank,
        coalesce(array_agg(position::integer ORDER BY position) FILTER (WHERE position <= $4), '{}') AS positions
    FROM head
    GROUP BY number
)
SELECT
    coalesce((SELECT w.retired_at IS NULL FROM /*schema*/worker AS w WHERE w.id = $1), false) AS is_alive,
    CASE
        WHEN EXISTS (SELECT 1 FROM /*schema*/pause) THEN 2
        WHEN EXISTS (SELECT 1 FROM /*schema*/gate WHERE kind <> 'system') THEN 1
        ELSE 0
    END AS checked,
    (SELECT count(*) FROM (SELECT 1 FROM found LIMIT $6) AS few) AS channels_seen,
    channel.queue, channel.priority, channel.upstream, channel.function, channel.position, peeked.first_rank, peeked.positions,
    pg_stat_get_xact_tuples_returned('/*schema*/ready_channel'::regclass) - before.entries AS entries
FROM before
LEFT JOIN (channel LEFT JOIN peeked ON peeked.number = channel.number) ON true
ORDER BY channel.number

-- name: walk
-- Same as `peek`, for too many channels to read each separately: one scan of all ready
-- tasks of these queues, each a range of the index.
-- 1 worker id, 2 queues, NULL for any, 3 functions, 4 how many of a priority at most, 5 upstreams whose
-- tasks may not be claimed, 6 paused queues
SELECT
    coalesce((SELECT w.retired_at IS NULL FROM /*schema*/worker AS w WHERE w.id = $1), false) AS is_alive,
    CASE
        WHEN EXISTS (SELECT 1 FROM /*schema*/pause) THEN 2
        WHEN EXISTS (SELECT 1 FROM /*schema*/gate WHERE kind <> 'system') THEN 1
        ELSE 0
    END AS checked,
    0, channel.queue, channel.priority, channel.upstream, channel.function, 0, channel.first_rank, channel.positions, 0
FROM (SELECT 1) AS always
LEFT JOIN (
    SELECT
        queue, priority, upstream, function, min(rank) AS first_rank,
        array_agg(position::integer ORDER BY position) AS positions
    FROM (
        SELECT
            r.queue, r.priority, r.upstream, r.function, r.rank,
            row_number() OVER (PARTITION BY r.priority ORDER BY r.rank, r.task_id) AS position
        FROM (
            SELECT listed.queue AS first, listed.queue AS last
            FROM unnest($2::text[]) AS listed (queue)
            UNION ALL
            SELECT '', repeat(chr(1114111), 100)
            WHERE $2::text[] IS NULL
        ) AS served
        CROSS JOIN LATERAL (
            SELECT x.queue, x.priority, x.upstream, x.function, x.rank, x.task_id
            FROM /*schema*/ready AS x
            WHERE x.queue >= served.first
                AND x.queue <= served.last
                AND x.function = ANY ($3::text[])
                AND NOT x.upstream = ANY ($5::text[])
                AND NOT x.queue = ANY ($6::text[])
            OFFSET 0
        ) AS r
    ) AS ranked
    WHERE position <= $4
    GROUP BY queue, priority, upstream, function
) AS channel ON true

-- name: take
-- Lock the worker row, so that it cannot be retired; lock the first tasks of each channel; move them; and return
-- them by priority and rank. If the worker is retired, no row is returned. Notes on the plan:
-- Locked rows are deleted by their position in the table (ctid): PostgreSQL could plan a join as a full scan.
-- Each read by id is a LATERAL … LIMIT 1, which can only be planned as one step in the index, independent of the
-- planner's estimate of the table's size.
-- Deleted rows are looked up in a hash (IS TRUE keeps the planner from making a join of it): the planner assumes
-- a single row on both sides, and would compare each of 500 tasks with each.
-- `attempt` is read only for tasks that ran before, to find the latest failure.
-- The condition on the only task uses nullif: with a plain OR the planner would assume that few rows match, and
-- read and sort the whole channel.
-- 1 at, 2 worker id, then by channel: 3 queues, 4 priorities, 5 upstreams, 6 functions, 7 positions in listed order,
-- 8 bounds on rank, 9 tasks to take, 10 crash limits, 11 first waits after a crash in seconds, 12 longest such waits,
-- 13 whether gates are checked: if not, no task is taken once a gate exists, 14 by channel: the only task to take, or
-- NULL for any; NULL as a whole for any task of every channel
WITH holder AS MATERIALIZED (
    SELECT w.id, /*schema*/moment($1) AS now
    FROM /*schema*/worker AS w
    WHERE w.id = $2
        AND w.retired_at IS NULL
        AND ($13 OR NOT EXISTS (SELECT 1 FROM /*schema*/gate WHERE kind <> 'system'))
    FOR KEY SHARE OF w
),
/*moving*/
/*taken*/

-- name: take_charged
-- Same as `take`, and charge the gates in the same statement, if nobody has changed them since they were read. If a gate
-- has changed, no task is taken. Without anything to charge, the gates are only compared.
-- 1 to 14 as for `take`; arrays by gate, in the order of kind and name: 15 kinds, 16 names, 17 versions (see `gates`);
-- 18 buckets by gate and number of taken tasks, from 0 on; 19 how many of these each gate has; NULL to charge nothing
WITH unchanged AS MATERIALIZED (
    SELECT g.row_location, given.number
    FROM unnest($15::text[], $16::text[], $17::text[]) WITH ORDINALITY AS given (kind, name, version, number)
    CROSS JOIN LATERAL (
        SELECT x.ctid AS row_location
        FROM /*schema*/gate AS x
        WHERE x.kind = given.kind
            AND x.name = given.name
            AND x.xmin::text = given.version
        FOR UPDATE
    ) AS g
    WHERE $19::integer IS NOT NULL
    UNION ALL
    SELECT x.ctid, given.number
    FROM unnest($15::text[], $16::text[], $17::text[]) WITH ORDINALITY AS given (kind, name, version, number)
    JOIN /*schema*/gate AS x ON x.kind = given.kind AND x.name = given.name AND x.xmin::text = given.version
    WHERE $19::integer IS NULL
),
holder AS MATERIALIZED (
    SELECT w.id, /*schema*/moment($1) AS now
    FROM /*schema*/worker AS w
    WHERE w.id = $2
        AND w.retired_at IS NULL
        AND $13
        AND (SELECT count(*) FROM unchanged) = cardinality($15::text[])
    FOR KEY SHARE OF w
),
/*moving*/,
charged AS (
    UPDATE /*schema*/gate AS g
    SET
        buckets = ($18::text[])[
            (SELECT (u.number - 1) * $19::integer FROM unchanged AS u WHERE u.row_location = g.ctid)
            + (SELECT count(*) FROM chosen) + 1
        ],
        changed_at = holder.now
    FROM holder
    WHERE g.ctid = ANY (ARRAY (SELECT row_location FROM unchanged))
        AND $19::integer IS NOT NULL
        AND EXISTS (SELECT 1 FROM chosen)
)
/*taken*/

-- name: gates
-- The gates of channels, each with its version: the number of the transaction that wrote it. `in_flight` is NULL unless the
-- gate may limit calls in flight.
-- Arrays: 1 kinds, 2 names; 3 at
SELECT
    g.kind, g.name, g.limits, g.state, g.buckets, g.xmin::text AS version, clock.now,
    CASE
        WHEN g.kind = 'upstream'
            AND NOT (
                g.limits LIKE '%"max_in_flight":null%'
                AND g.state LIKE '%"slow_start_at":null%'
                AND g.state LIKE '%"target":null%'
            )
        THEN
            (SELECT count(*) FROM /*schema*/running AS r WHERE r.upstream = g.name AND r.upstream <> '')
            + (
                SELECT count(*)
                FROM /*schema*/permit AS p
                WHERE p.upstream = g.name
                    AND p.expires_at > clock.now
                    AND (
                        p.task_id IS NULL
                        OR EXISTS (SELECT 1 FROM /*schema*/running AS r WHERE r.task_id = p.task_id AND r.run = p.run)
                    )
            )
    END AS in_flight
FROM (SELECT /*schema*/moment($3) AS now) AS clock
CROSS JOIN unnest($1::text[], $2::text[]) AS given (kind, name)
JOIN /*schema*/gate AS g ON g.kind = given.kind AND g.name = given.name
ORDER BY g.kind, g.name

-- name: prober
-- The first task of a channel that is not on its last attempt; if there is no such task, the first task. The gate of
-- the task is locked, so no other claim can take the task as a probe.
-- 1 queue, 2 priority, 3 upstream, 4 function, 5 attempts of the function, 6 how many to read
SELECT head.task_id, head.is_last
FROM (
    SELECT r.rank, r.task_id, t.attempts + 1 >= coalesce(t.max_attempts, $5) AS is_last
    FROM /*schema*/ready AS r
    CROSS JOIN LATERAL (
        SELECT x.attempts, x.max_attempts
        FROM /*schema*/task AS x
        WHERE x.id = r.task_id
        LIMIT 1
    ) AS t
    WHERE r.queue = $1
        AND r.priority = $2
        AND r.upstream = $3
        AND r.function = $4
    ORDER BY r.rank, r.task_id
    LIMIT $6
) AS head
ORDER BY head.is_last, head.rank, head.task_id
LIMIT 1

-- name: mark_probes
-- 1 task ids
UPDATE /*schema*/running
SET probe = true
WHERE task_id = ANY ($1::uuid[])
