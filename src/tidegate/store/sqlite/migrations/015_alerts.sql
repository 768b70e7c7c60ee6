-- 015: alerts: which alerts are open, what must be sent about them, and what people have muted.
-- Locks: none that matter: the tables are new, and the new indexes have only the rows of tasks that ran often.
-- Older code runs on, and evaluates no alerts.

-- One row, once a pass was made: who evaluates when. A pass may begin at `next_at`, and only the latest pass may write.
CREATE TABLE alert_pass (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    number      INTEGER NOT NULL,        -- of the latest pass; it rises by 1
    evaluator   TEXT NOT NULL,           -- the process, for people
    started_at  REAL NOT NULL,
    next_at     REAL NOT NULL,
    finished_at REAL,                    -- when a pass last ended
    usual       TEXT NOT NULL DEFAULT '', -- JSON of what is usual, which the rules compare with
    usual_at    REAL                     -- when it was computed
) WITHOUT ROWID;

-- One row for each time that a rule's condition held: `pending` until it has held for long enough, then `open`, then
-- `ended`.
CREATE TABLE alert_episode (
    id          TEXT PRIMARY KEY,
    rule        TEXT NOT NULL,
    subject     TEXT NOT NULL,           -- the queue, function, upstream… that the rule is about
    state       TEXT NOT NULL CHECK (state IN ('pending', 'open', 'ended')),
    severity    TEXT NOT NULL CHECK (severity IN ('warning', 'critical')),
    first_at    REAL NOT NULL,           -- since when the condition has held
    opened_at   REAL,
    calm_at     REAL,                    -- since when the condition has not held any more
    last_at     REAL NOT NULL,           -- when it was last evaluated
    ended_at    REAL,
    value       REAL NOT NULL,
    threshold   REAL NOT NULL,
    detail      TEXT NOT NULL,
    notified    INTEGER NOT NULL         -- 1: the opening was sent, so the end must be sent too
) WITHOUT ROWID;
CREATE UNIQUE INDEX alert_episode_current ON alert_episode (rule, subject) WHERE state <> 'ended';
CREATE INDEX alert_episode_ended ON alert_episode (ended_at) WHERE state = 'ended';

-- What a sink must get. The id is part of the message, so a message that is sent again has the same one.
CREATE TABLE alert_notice (
    id          TEXT PRIMARY KEY,
    sink        TEXT NOT NULL,
    about       TEXT NOT NULL,           -- the id of the episode, or of a task; its messages arrive in order
    kind        TEXT NOT NULL,           -- the type of the message: alert.opened, alert.ended, task.dead…
    body        TEXT NOT NULL,           -- JSON
    created_at  REAL NOT NULL,
    next_at     REAL,                    -- when it is due; while it is being sent, when another process may; NULL: done
    attempts    INTEGER NOT NULL,
    delivered_at REAL,                   -- NULL with next_at NULL: given up
    error       TEXT NOT NULL            -- why the last attempt failed
) WITHOUT ROWID;
CREATE INDEX alert_notice_due ON alert_notice (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX alert_notice_about ON alert_notice (about, sink) WHERE next_at IS NOT NULL;
CREATE INDEX alert_notice_created ON alert_notice (created_at);

CREATE TABLE alert_mute (
    rule     TEXT NOT NULL,              -- * for all
    subject  TEXT NOT NULL,              -- * for all
    until_at REAL,                       -- NULL: until a person ends it
    muted_at REAL NOT NULL,
    muted_by TEXT NOT NULL,
    why      TEXT NOT NULL,
    PRIMARY KEY (rule, subject)
) WITHOUT ROWID;

-- Sinks that must not be used any more, because they answered 410.
CREATE TABLE alert_sink (
    name        TEXT PRIMARY KEY,
    target      TEXT NOT NULL,           -- a hash of its address: another address makes it a new sink
    disabled_at REAL NOT NULL,
    why         TEXT NOT NULL
) WITHOUT ROWID;

-- Tasks that run again and again, or make very many calls.
CREATE INDEX ready_runs ON ready (run) WHERE run > 20;
CREATE INDEX running_runs ON running (run) WHERE run > 20;
CREATE INDEX waiting_runs ON waiting (run) WHERE run > 20;
CREATE INDEX usage_calls ON usage (calls) WHERE calls > 100;
