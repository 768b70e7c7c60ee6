-- 010: autoscale: the number of workers that a pool should have, for autoscalers that read a database (KEDA postgresql).
-- Locks: none that matter, because it only adds a function. Older code works with this schema.

-- The rule of policy.autoscale, without a least and a most, and without limits that were learned from responses. It counts
-- ready and due tasks that are not paused and whose upstream is not parked, and what runs.
CREATE FUNCTION /*schema*/desired_workers(
    queues text[] DEFAULT '{*}',                -- of the pool; * for all
    slots_per_worker integer DEFAULT 8,         -- processes of the pool times its concurrency
    target_seconds double precision DEFAULT 60, -- when the backlog should be done
    backlog_per_worker integer DEFAULT NULL     -- if set: a worker for every so many tasks, however long they run
) RETURNS integer
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    now_at CONSTANT double precision := date_part('epoch', clock_timestamp());
    groups jsonb;       -- the work of each queue, upstream and function
    starts jsonb;       -- by gate: how many more tasks may start per second; missing: any number
    at_once jsonb;      -- by gate: how many more may run at once; missing: any number
    part jsonb;
    gate text;
    wanted double precision;
    more double precision;
    slots double precision := 0;
    is_charging boolean;
BEGIN
    SELECT
        coalesce(jsonb_object_agg(g.name, g.rate) FILTER (WHERE g.rate IS NOT NULL), '{}'),
        coalesce(jsonb_object_agg(g.name, g.most) FILTER (WHERE g.most IS NOT NULL), '{}')
    INTO starts, at_once
    FROM (
        SELECT
            kind || ':' || name AS name, (limits::jsonb ->> 'max_in_flight')::double precision AS most,
            (
                SELECT min((w ->> 'amount')::double precision / (w ->> 'seconds')::double precision)
                FROM jsonb_array_elements(limits::jsonb -> 'windows') AS w
            ) AS rate
        FROM /*schema*/gate
    ) AS g;

    WITH counted AS (
        SELECT queue, upstream, function, count(*) AS runnable, 0 AS running
        FROM /*schema*/ready
        GROUP BY queue, upstream, function
        UNION ALL
        SELECT queue, upstream, function, count(*), 0
        FROM /*schema*/waiting
        WHERE coalesce(held_until_at, due_at) <= now_at AND due_at IS NOT NULL
        GROUP BY queue, upstream, function
        UNION ALL
        SELECT queue, upstream, function, 0, count(*)
        FROM /*schema*/running
        GROUP BY queue, upstream, function
    ),
    lately AS (
        SELECT queue, upstream, function, sum(run_seconds) / nullif(sum(runs), 0) AS seconds
        FROM (
            SELECT queue, upstream, function, run_seconds, succeeded + dead + retried + released AS runs
            FROM /*schema*/rollup
            WHERE minute >= floor(now_at / 60) - 60
            UNION ALL
            SELECT queue, upstream, function, run_seconds, succeeded + dead + retried + released
            FROM /*schema*/tally
            WHERE minute >= floor(now_at / 60) - 60
        ) AS ended
        GROUP BY queue, upstream, function
    ),
    channels AS (
        SELECT
            c.queue, c.upstream, c.function, sum(c.running) AS running,
            CASE WHEN EXISTS (
                SELECT FROM /*schema*/pause AS p
                WHERE (p.kind = 'queue' AND p.name = c.queue) OR (p.kind = 'function' AND p.name = c.function)
            ) OR EXISTS (
                SELECT FROM /*schema*/gate AS g
                WHERE g.kind = 'upstream' AND g.name = c.upstream AND g.state::jsonb ->> 'parked_by' IS NOT NULL
                    AND coalesce((g.state::jsonb ->> 'until_at')::double precision > now_at, true)
            ) THEN 0 ELSE sum(c.runnable) END AS runnable
        FROM counted AS c
        GROUP BY c.queue, c.upstream, c.function
    )
    SELECT coalesce(jsonb_agg(jsonb_build_object(
        'runnable', c.runnable,
        'running', c.running,
        'seconds', coalesce(l.seconds, (
            SELECT (g.state::jsonb ->> 'typical_seconds')::double precision
            FROM /*schema*/gate AS g
            WHERE ((g.kind = 'upstream' AND g.name = c.upstream) OR (g.kind = 'function' AND g.name = c.function))
                AND (g.state::jsonb -> 'learned_rate' ->> 'counted_at')::double precision > 0
            ORDER BY g.kind DESC
            LIMIT 1
        )),
        'gates', jsonb_build_array('upstream:' || c.upstream, 'function:' || c.function),
        'own', '*' = ANY (queues) OR c.queue = ANY (queues)
    )), '[]')
    INTO groups
    FROM channels AS c
    LEFT JOIN lately AS l USING (queue, upstream, function);

    -- First what runs uses the limits up, then the groups of the pool share what is left.
    FOREACH is_charging IN ARRAY ARRAY[true, false] LOOP
        FOR part IN SELECT * FROM jsonb_array_elements(groups) LOOP
            IF is_charging THEN
                more := (part ->> 'running')::double precision;
            ELSIF NOT (part ->> 'own')::boolean THEN
                CONTINUE;
            ELSE
                wanted := (part ->> 'runnable')::double precision + (part ->> 'running')::double precision;
                IF backlog_per_worker IS NOT NULL OR part ->> 'seconds' IS NULL THEN
                    more := ceil(wanted / coalesce(backlog_per_worker, 100)) * slots_per_worker;
                ELSE
                    more := ceil(wanted * (part ->> 'seconds')::double precision / target_seconds);
                END IF;
                wanted := least(wanted, greatest((part ->> 'running')::double precision, 1, more));
                more := wanted - (part ->> 'running')::double precision;
                FOR gate IN SELECT jsonb_array_elements_text(part -> 'gates') LOOP
                    more := least(
                        more,
                        greatest(0, ceil(coalesce((at_once ->> gate)::double precision, 'infinity') - 1e-9)),
                        greatest(0, ceil(
                            coalesce((starts ->> gate)::double precision, 'infinity')
                            * greatest(0.001, coalesce((part ->> 'seconds')::double precision, 1)) - 1e-9
                        ))
                    );
                END LOOP;
                slots := slots + more + (part ->> 'running')::double precision;
            END IF;
            FOR gate IN SELECT jsonb_array_elements_text(part -> 'gates') LOOP
                IF starts ? gate THEN
                    starts := jsonb_set(starts, ARRAY[gate], to_jsonb(
                        (starts ->> gate)::double precision
                        - more / greatest(0.001, coalesce((part ->> 'seconds')::double precision, 1))
                    ));
                END IF;
                IF at_once ? gate THEN
                    at_once := jsonb_set(at_once, ARRAY[gate], to_jsonb((at_once ->> gate)::double precision - more));
                END IF;
            END LOOP;
        END LOOP;
    END LOOP;
    RETURN ceil(slots / slots_per_worker);
END
$$;
