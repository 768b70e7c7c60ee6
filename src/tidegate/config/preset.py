"""The `tidegate.toml` that `tidegate init` writes, with a comment for each setting."""

from __future__ import annotations

_PRESET = """\
# Tidegate's settings. Run `tidegate doctor` to check them.
# Environment variables override this file: TIDEGATE_DATABASE_URL, TIDEGATE_APP, TIDEGATE_LEASE…

# The application with your task functions: module:attribute, as in `from app import app`.
app = "app:app"

# Other modules that declare task functions with `from app import app` and `@app.task`.
# modules = ["jobs", "billing.tasks"]

# The database: one file, created on first use. The path is relative to this file.
database = "sqlite:///.tidegate/tidegate.db"

# The retry budget of the whole system: the most retries per minute.
# retries_per_minute = 600

# A pool is a group of worker processes that serves some queues. `tidegate worker` starts all of them,
# `tidegate worker --pool realtime` only that one. Separate pools keep slow work from delaying quick work.
#   queues         the queues it serves; "*" is every queue. Tasks of a queue that no pool serves never run
#   concurrency    tasks at once in each process; "auto": 8, and up to 200 that wait for an upstream
#   processes      how many processes
#   poll_interval  how often it checks for tasks, in seconds
#   memory_limit   such as "2GiB": a process that uses more is killed, its task recorded as a crash
#   memory_soft_limit  less than that: a process that uses more is replaced after its current tasks
#   gpus           such as [0, 1]: each child process sees one of them
#   strict         true: queues strictly in listed order; false: the longest waiting task first

# Somebody waits for these: checked ten times a second.
[pools.realtime]
queues = ["realtime"]
concurrency = "auto"
poll_interval = 0.1
processes = 1

# The everyday work.
[pools.default]
queues = ["critical", "default"]
concurrency = "auto"
poll_interval = 0.5
processes = 1

# Nobody waits for these: overnight batches, embeddings, low priority, and with "*" every queue that no
# other pool names.
[pools.background]
queues = ["batch", "embeddings", "low", "*"]
concurrency = "auto"
poll_interval = 2
processes = 1

# The timings of a worker. Durations are seconds, or text such as "30s" and "5m".
# [worker]
# lease = 30          # a worker that is silent for this long counts as dead; others run its tasks
# drain_grace = "2m"  # the time for running tasks to finish after SIGTERM; the rest is released

# With TIDEGATE_ENV=development (and in `tidegate dev`) the settings below apply:
# one pool for everything.
[env.development.pools.all]
queues = ["*"]
concurrency = "auto"
poll_interval = 0.1
"""


def preset_toml() -> str:
    """Return the text of a `tidegate.toml` for a new project."""
    return _PRESET
