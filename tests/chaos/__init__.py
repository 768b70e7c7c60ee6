"""Chaos: real worker commands on one store, killed, stopped and cut off at random, and judged.

    make chaos                                   five minutes, a hundred kills
    make chaos ARGS="--seconds 60 --seed 7"      shorter, with a seed of one's own
    make chaos ARGS="--store postgres"           on a PostgreSQL server of its own

plan.py       how much of what, and the times within which things must be well again
bodies.py     the application: task functions that write down their starts and ends
client.py     a process that enqueues, and resends what it was killed in the middle of
hosts.py      one worker command or client each, started again whenever it ends
world.py      the run: start, play, wait until everything is final, stop, look for what was left behind
nemesis.py    what goes wrong, chosen by the seed; everyone.py, houses.py and outage.py: what hits all at once
ticker.py     measures when the machine stands still; prober.py: when the store does
faults.py     the journal of all that; ledgers.py: what clients and processes wrote down
judge.py      whether all accounts agree, with each other and with the faults: reasons.py says which fault
              explains what, orphans.py how soon the runs of the dead must be taken up
report.py     the table, the JSON, and the histories that offend

Linux only: processes are found in /proc and signalled through pidfds.
"""
