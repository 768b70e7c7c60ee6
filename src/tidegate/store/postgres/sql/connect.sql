-- connect: what holds for each of our sessions, whatever is set for the database. Not through a pooler, which would
-- hand it on to others: there the settings of the role count.

-- name: configure
-- Statements are written for READ COMMITTED: above it, each meeting of two is an error. A client that falls silent
-- within a transaction, frozen or cut off, lets go of its locks well before its lease runs out.
-- 1 longest silence within a transaction, with its unit
SELECT
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('idle_in_transaction_session_timeout', $1, false)
