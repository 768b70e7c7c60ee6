"""What `tidegate init` writes: a file to start from, explained line by line."""

from __future__ import annotations

_PRESET = """\
# Tidegate's settings. Run `tidegate doctor` to check them.
# Environment variables win over this file: TIDEGATE_DATABASE_URL, TIDEGATE_APP, TIDEGATE_LEASE…

# Where your task functions are: module:attribute, as in `from app import app`.
app = "app:app"

# Other modules that declare task functions with `from app import app` and `@app.task`.
# modules = ["jobs", "billing.tasks"]

# Where tasks are kept. One file, made on first use. The path counts from this file.
database = "sqlite:///.tidegate/tidegate.db"

# The retry budget of the whole system: at most so many re-runs a minute, whatever failed.
# retries_per_minute = 600

# A pool is a group of worker processes that serves some queues. `tidegate worker` starts all of them,
# `tidegate worker --pool realtime` only that one. Separate pools keep slow work from delaying quick work.
#   queues         what it serves; "*" is every queue. A queue that no pool serves is never worked on
#   concurrency    tasks at once in each process
#   processes      how many processes
#   poll_interval  how often it looks for work, in seconds
#   memory_limit   such as "2GiB": a process that holds more is killed, its task recorded as a crash
#   memory_soft_limit  less than that: a process that holds more is replaced after its present tasks
#   gpus           such as [0, 1]: each child process sees one of them
#   strict         true: queues strictly in listed order; false: the longest waiting task first

# Somebody waits for these: looked for ten times a second.
[pools.realtime]
queues = ["realtime"]
concurrency = 3
poll_interval = 0.1
processes = 1

# The everyday work.
[pools.default]
queues = ["critical", "default"]
concurrency = 2
poll_interval = 0.5
processes = 1

# Nobody waits for these: overnight batches, embeddings, what may come last, and with "*" every queue
# that is named nowhere else.
[pools.background]
queues = ["batch", "embeddings", "low", "*"]
concurrency = 2
poll_interval = 2
processes = 1

# The clocks of a worker. Durations are seconds, or text such as "30s" and "5m".
# [worker]
# lease = 30          # a worker that is silent for so long is taken for dead; its tasks go to others
# drain_grace = "2m"  # for running tasks after SIGTERM; the rest is given back

# With TIDEGATE_ENV=development (and in `tidegate dev`) the settings below win:
# one pool for everything.
[env.development.pools.all]
queues = ["*"]
concurrency = 8
poll_interval = 0.1
"""


def preset_toml() -> str:
    """Return the text of a `tidegate.toml` for a new project."""
    return _PRESET
