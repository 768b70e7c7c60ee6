-- Finished jobs stay in the table of all jobs for a day; so do scheduled ones until they are due.
INSERT INTO oban_jobs (state, worker, attempt, args, attempted_at, completed_at)
SELECT
    'completed', 'benchmarks.peers.postgresql.oban.Noop', 1, '{"number": 0}',
    timezone('UTC', now()), timezone('UTC', now())
FROM generate_series(1, :finished) AS i;
INSERT INTO oban_jobs (state, worker, args, scheduled_at)
SELECT
    'scheduled', 'benchmarks.peers.postgresql.oban.Noop', '{"number": 0}',
    timezone('UTC', now()) + interval '30 days'
FROM generate_series(1, :scheduled) AS i;
