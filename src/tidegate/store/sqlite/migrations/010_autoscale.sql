-- 010: autoscale: PostgreSQL gets a function that autoscalers call. SQLite has no server to hold one, so nothing changes
-- here; the number is used up so that both stores count alike.

SELECT 1;
