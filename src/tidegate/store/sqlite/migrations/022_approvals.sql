-- 022: approvals: what tasks ask people, and what people answered.
-- Locks: none that matter, because the table is new.
-- Older code runs on. It asks nobody, and can suspend no task for an answer.

-- One row for each question of a task. `number` rises with the order in which they were first asked.
CREATE TABLE approval (
    number      INTEGER PRIMARY KEY,
    task_id     BLOB NOT NULL,
    key         TEXT NOT NULL,            -- its identity within the task
    state       TEXT NOT NULL CHECK (state IN ('open', 'approved', 'rejected', 'timed_out')),
    question    TEXT NOT NULL,
    recipient   TEXT NOT NULL DEFAULT '', -- whom the task asks; empty: nobody in particular
    codec_tag   TEXT NOT NULL,
    data        BLOB NOT NULL,            -- given with the question
    run         INTEGER NOT NULL,         -- that asked last
    asks        INTEGER NOT NULL,         -- how often it was asked: again if the task was redriven after a time-out
    asked_at    REAL NOT NULL,
    deadline_at REAL,                     -- when it times out; NULL: never
    answered_at REAL,                     -- after a time-out: when the time was over
    answered_by TEXT NOT NULL DEFAULT '',
    comment     TEXT NOT NULL DEFAULT '',
    answer_tag  TEXT NOT NULL DEFAULT '', -- the codec tag of `answer`
    answer      BLOB,                     -- the data of the answer; NULL: there is no answer
    UNIQUE (task_id, key)
);
CREATE INDEX approval_open ON approval (number) WHERE state = 'open';
