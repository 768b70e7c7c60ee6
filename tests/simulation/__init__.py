"""The virtual-time simulation: the real engine over the real SQLite store, through thousands of faults.

A seed makes a world of two to four workers and two clients on one database file, each on a machine of its
own with its own connection. Machines crash between any two steps, stand still for longer than their lease,
lose the store, are told to stop; transactions fail, answers get lost, the wall clock jumps. Then the faults
stop, and everything must become final within a stated time. The history checker judges, and beside it what
only someone who saw every commit and every fault can tell. The same seed gives the same history.

Outside it: supervisors and pool processes, child slots and threads, signals, the writer thread of the
store, real disks and power loss. A worker here is the embedded one with its duties in its own loop.

    PYTHONPATH=tests python -m simulation --seeds 1000
    PYTHONPATH=tests python -m simulation --seed 17
"""

from __future__ import annotations

from simulation.plan import USUAL_FAULTS, FaultKind, SimulationPlan
from simulation.result import SimulationResult, simulate
from simulation.shrink import shrink
from simulation.sweep import SweepTotals, sweep

__all__ = [
    "USUAL_FAULTS",
    "FaultKind",
    "SimulationPlan",
    "SimulationResult",
    "SweepTotals",
    "shrink",
    "simulate",
    "sweep",
]
