-- 015: alerts: which alerts are open, what must be sent about them, and what people have muted.
-- Locks: `ready`, `running`, `waiting` and `usage` against writes while an index is built on each, which reads the table
-- once. The indexes have only the rows of tasks that ran often. To upgrade without that, build them beforehand with
-- CREATE INDEX CONCURRENTLY IF NOT EXISTS.
-- Older code runs on, and evaluates no alerts.

-- One row, once a pass was made: who evaluates when. A pass may begin at `next_at`, and only the latest pass may write.
CREATE TABLE /*schema*/alert_pass (
    id          integer PRIMARY KEY CHECK (id = 1),
    number      bigint NOT NULL,         -- of the latest pass; it rises by 1
    evaluator   text COLLATE "C" NOT NULL, -- the process, for people
    started_at  double precision NOT NULL,
    next_at     double precision NOT NULL,
    finished_at double precision,        -- when a pass last ended
    usual       text NOT NULL DEFAULT '', -- JSON of what is usual, which the rules compare with
    usual_at    double precision         -- when it was computed
) WITH (fillfactor = 50);

-- One row for each time that a rule's condition held: `pending` until it has held for long enough, then `open`, then
-- `ended`.
CREATE TABLE /*schema*/alert_episode (
    id          text COLLATE "C" PRIMARY KEY,
    rule        text COLLATE "C" NOT NULL,
    subject     text COLLATE "C" NOT NULL,           -- the queue, function, upstream… that the rule is about
    state       text COLLATE "C" NOT NULL CHECK (state IN ('pending', 'open', 'ended')),
    severity    text COLLATE "C" NOT NULL CHECK (severity IN ('warning', 'critical')),
    first_at    double precision NOT NULL,           -- since when the condition has held
    opened_at   double precision,
    calm_at     double precision,                    -- since when the condition has not held any more
    last_at     double precision NOT NULL,           -- when it was last evaluated
    ended_at    double precision,
    value       double precision NOT NULL,
    threshold   double precision NOT NULL,
    detail      text NOT NULL,
    notified    smallint NOT NULL                    -- 1: the opening was sent, so the end must be sent too
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX alert_episode_current ON /*schema*/alert_episode (rule, subject) WHERE state <> 'ended';
CREATE INDEX alert_episode_ended ON /*schema*/alert_episode (ended_at) WHERE state = 'ended';

-- What a sink must get. The id is part of the message, so a message that is sent again has the same one.
CREATE TABLE /*schema*/alert_notice (
    id          text COLLATE "C" PRIMARY KEY,
    sink        text COLLATE "C" NOT NULL,
    about       text COLLATE "C" NOT NULL,           -- the id of the episode, or of a task; its messages arrive in order
    kind        text COLLATE "C" NOT NULL,           -- the type of the message: alert.opened, alert.ended, task.dead…
    body        text NOT NULL,                       -- JSON
    created_at  double precision NOT NULL,
    next_at     double precision,                    -- when it is due; while it is being sent, when another process may; NULL: done
    attempts    integer NOT NULL,
    delivered_at double precision,                   -- NULL with next_at NULL: given up
    error       text NOT NULL                        -- why the last attempt failed
);
CREATE INDEX alert_notice_due ON /*schema*/alert_notice (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX alert_notice_about ON /*schema*/alert_notice (about, sink) WHERE next_at IS NOT NULL;
CREATE INDEX alert_notice_created ON /*schema*/alert_notice (created_at);

CREATE TABLE /*schema*/alert_mute (
    rule     text COLLATE "C" NOT NULL,              -- * for all
    subject  text COLLATE "C" NOT NULL,              -- * for all
    until_at double precision,                       -- NULL: until a person ends it
    muted_at double precision NOT NULL,
    muted_by text COLLATE "C" NOT NULL,
    why      text COLLATE "C" NOT NULL,
    PRIMARY KEY (rule, subject)
);

-- Sinks that must not be used any more, because they answered 410.
CREATE TABLE /*schema*/alert_sink (
    name        text COLLATE "C" PRIMARY KEY,
    target      text COLLATE "C" NOT NULL,           -- a hash of its address: another address makes it a new sink
    disabled_at double precision NOT NULL,
    why         text NOT NULL
);

-- Tasks that run again and again, or make very many calls.
CREATE INDEX IF NOT EXISTS ready_runs ON /*schema*/ready (run) WHERE run > 20;
CREATE INDEX IF NOT EXISTS running_runs ON /*schema*/running (run) WHERE run > 20;
CREATE INDEX IF NOT EXISTS waiting_runs ON /*schema*/waiting (run) WHERE run > 20;
CREATE INDEX IF NOT EXISTS usage_calls ON /*schema*/usage (calls) WHERE calls > 100;
