"""Chaos: real worker commands on one SQLite file, killed, stopped and cut off at random, and judged.

    make chaos                                   five minutes, a hundred kills
    make chaos ARGS="--seconds 60 --seed 7"      shorter, with a seed of one's own

plan.py       how much of what, and the times within which things must be well again
bodies.py     the application: task functions that write down their starts and ends
client.py     a process that enqueues, and resends what it was killed in the middle of
hosts.py      one worker command and one client each, started again whenever they end
nemesis.py    what goes wrong, chosen by the seed; everyone.py: what hits all at once
world.py      the run: play, wait until everything is final, stop, look for what was left behind
judge.py      whether what clients were told, what bodies wrote down and what the store says agree with
              each other and with the faults
report.py     the table and the JSON

Linux only: processes are found in /proc and signalled through pidfds.
"""
