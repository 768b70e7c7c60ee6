-- connect: settings of each session, independent of the database's. These settings are not set through a pooler, which
-- would apply them to other clients; through a pooler the settings of the role apply.

-- name: configure
-- The statements need READ COMMITTED: with a higher level, each conflict is an error. If a client freezes or is cut off
-- within a transaction, its locks are released well before its lease runs out.
-- 1 longest idle time within a transaction, with its unit
SELECT
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('idle_in_transaction_session_timeout', $1, false)
