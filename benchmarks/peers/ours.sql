-- Finished tasks keep their lifelong row, their payload and their row of the archive for seven days; scheduled
-- ones wait apart from the ready. None is older than a day, so retention leaves them alone; none falls due.
SET search_path = tidegate;
CREATE TEMP TABLE old AS
SELECT
    i,
    at,
    (
        lpad(to_hex((at * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(i % 4096), 3, '0') || '8'
        || substr(md5(i::text), 1, 15)
    )::uuid AS id
FROM (
    SELECT i, date_part('epoch', now()) - 80000 + i * 70000.0::double precision / (:finished + :scheduled) AS at
    FROM generate_series(1, :finished + :scheduled) AS i
) AS numbered;
INSERT INTO task (id, function, queue, priority, enqueued_at)
SELECT id, 'benchmarks.peers.ours:noop', 'default', 1, at FROM old ORDER BY i;
INSERT INTO payload (task_id, codec_tag, args)
SELECT id, 'json/1', convert_to('{"a":[],"k":{"number":0}}', 'UTF8') FROM old ORDER BY i;
INSERT INTO archive (task_id, state, run, worker_id, ready_at, started_at, finished_at)
SELECT id, 'succeeded', 1, '00000000-0000-4000-8000-000000000000', at, at + 0.01, at + 0.02
FROM old WHERE i <= :finished ORDER BY i;
INSERT INTO waiting (task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run)
SELECT id, 'scheduled', at + 2592000, 'default', 1, '', 'benchmarks.peers.ours:noop', '', at + 2592000, 0
FROM old WHERE i > :finished ORDER BY i;
INSERT INTO rollup (
    minute, queue, function, upstream, tenant, enqueued, succeeded, run_seconds, first_final_at
)
SELECT
    floor(at / 60), 'default', 'benchmarks.peers.ours:noop', '', '', count(*), count(*), count(*) * 0.01, min(at) + 0.02
FROM old WHERE i <= :finished GROUP BY floor(at / 60);
DROP TABLE old;
