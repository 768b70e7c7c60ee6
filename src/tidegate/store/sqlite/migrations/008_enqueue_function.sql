-- 008: enqueue function: PostgreSQL gets a function with which any program enqueues. SQLite has no server to hold one, so
-- nothing changes here; the number is used up so that both stores count alike.

SELECT 1;
