"""Kill points: a worker is killed at one store statement after the other, and another one finishes its task.

A plain run of the task is counted first: each store statement is two points, before and after it, and each
call to the provider has some of its own, up to the last byte of its answer. Then a new task is run for each
point, and its worker kills itself there with SIGKILL. The next worker finishes the task. What the provider
billed, what the store had at the kill and what the function got must agree (see `harness.paid_calls`).

points.py        the points, and the kill
application.py   the task: about 30 steps and recorded calls, some at the same time, some as streams
worker.py        a process that forks a worker for each point; the test talks to it in lines of JSON

Linux only, as it forks a process that has imported everything.
"""
