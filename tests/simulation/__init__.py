"""The virtual-time simulation: the real engine over the real SQLite store, through thousands of faults.

A seed sets up two to four workers and two clients on one database file, each on its own simulated machine
with its own connection. Machines crash between any two steps, freeze for longer than their lease, lose the
store, and are asked to stop; transactions fail, responses get lost, the wall clock jumps. Then the faults
stop, and every task must become final within a stated time. The harness (see `harness`) checks the record of
the run, with every commit and every fault. The same seed gives the same history.

Not simulated: supervisors, pool processes, child processes, threads, signals, the store's writer thread, real
disks and power loss. A worker here is the embedded one, with maintenance in its own event loop.

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
