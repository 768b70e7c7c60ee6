"""Chaos: real worker commands on one store are killed, frozen and cut off at random, and checked.

This is the driver for real processes of the harness (see `harness`), which has the checks.

    make chaos                                   five minutes, a hundred kills
    make chaos ARGS="--seconds 60 --seed 7"      shorter, with a seed of your own
    make chaos ARGS="--store postgres"           on its own PostgreSQL server

plan.py              the size of a run, and the times within which the system must recover
functions.py         the application: task functions that record their starts and ends
paid_calls.py        the providers, and the client that calls them
client.py            a process that enqueues, and resends requests without a response
hosts.py             one worker command or client each, restarted whenever it ends
chaos_run.py         the run: start, inject faults, wait until every task is final, stop, look for leftovers
fault_injector.py    the faults, chosen by the seed; global_faults.py and outage.py: faults that hit everyone
stall_detector.py    measures when the machine stalls; write_monitor.py: when the store is blocked
faults.py            the kinds of faults; process_logs.py: the records of clients and processes
run_record.py        the record for the harness; run_checks.py: checks of the faults that hit everyone
report.py            the table, the JSON, and the violations with the histories of their tasks

Linux only: processes are found in /proc and signalled through pidfds.
"""
