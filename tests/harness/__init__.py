"""The harness: what a run with faults is, and every check of one. It has two drivers.

`simulation` runs the engine in one process on virtual time; `chaos` runs real worker commands. Each driver
makes the tasks run, injects its own kinds of faults, and ends with a `RunRecord`. `check_run` checks the
record. A check whose data a driver cannot have finds nothing there.

scripts.py         what a task's function does in each run, and how the task may end
faults.py          the effects of faults; the log of all faults of a run
steps.py           the results of steps, and the calls that are paid twice
paid_calls.py      the paid calls of HTTP clients, compared with the provider's own ledger
relations.py       maps, tasks after others, children, and tasks that wait for events
record.py          the record: what clients saw, what functions recorded, each run of each task, the store at the end
checks.py          all checks; here: late starts, overlaps, ends, times, cancels, unique names
causes.py          which fault or function explains the end of a run
orphans.py         how soon the runs of dead workers must be decided and claimed again
commit_checks.py   what only the order of all commits shows
history.py         the history of a task, printed for each violation

The invariants, and where each is checked. The history checker is the package `checker`.

| invariant | check | simulation | chaos |
|---|---|---|---|
| I1 an accepted task exists, with its arguments; I2 none exists that nobody enqueued | history checker | yes | yes |
| I3 one task for a key; one open task for a unique name | history checker; `checks` | yes | yes |
| I5 only allowed moves; cancelled only on request | history checker; `checks` | yes | yes |
| I6 one final move; a client's final state is the stored one | history checker; `checks` | yes | yes |
| I7 runs rise, each starts once | history checker | yes | yes |
| I8 a run is claimed after the last was closed | history checker | yes | yes |
| I8 a function outside of its run has a cause | `checks` | yes | yes |
| I8 a retired worker gets no run | `commit_checks` | yes | needs all commits |
| I9 a run ends once; I10 the answers to its worker are true | `commit_checks` | yes | needs all commits |
| I10 the result is that of the run that succeeded; what cannot succeed does not | history checker; `checks` | yes | yes |
| I12 every re-run and death has a cause; an unanswered claim never began | history checker; `causes` | yes | yes |
| I12 nothing is re-run because all were hit alike | `causes`; `chaos.run_checks` | yes | yes |
| I13 all is final in time after the faults; workers stop in time | history checker; `checks` | yes | yes |
| I13 a client that waits is notified | `checks` | yes | its clients stop first |
| I14 orphans are decided in time | `orphans` | yes | yes |
| I14 their tasks are claimed again in time | `orphans` | has too few slots | yes |
| I15 attempts, crashes, losses and parks within limits; only expected deaths | history checker; `checks` | yes | yes |
| I19 no run starts after a cancel; a running one stops soon | history checker; `checks` | yes | yes |
| I20 counters equal a recount, the store is not damaged | history checker; `checks` | yes | yes |
| I11, G6 the first result of a step is the only one; a call that is paid twice is listed | `steps` | yes | yes |
| I11, G6 the same for calls over HTTP, by the ledgers of providers | `paid_calls` | has no providers | yes |
| I18 the counts of a map are exact, and its callback is one | `relations` | yes | yes |
| after: a task runs after its parents, as its policy says | `relations` | yes | yes |
| wait: each run gets the same event and the same results of its children | `relations` | yes | yes |
| I4 (a rolled-back transaction), I16 (limits), I17 (schedules) | tests of their rooms | no | no |

`uncaught`, `client`, `left`, `seen` and `plan` are no invariants: errors that nobody caught, errors of clients,
processes or files that were left behind, processes that ended by themselves, and too few faults.
"""
