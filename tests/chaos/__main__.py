"""The command: run chaos, print the table, keep the figures as JSON; exit with 1 on any violation."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import msgspec

from chaos import report
from chaos.hosts import clean_environment
from chaos.plan import SHORTEST_SECONDS, ChaosPlan
from chaos.processes import RUN
from chaos.run_checks import check_chaos
from chaos.run_record import ChaosRecord
from chaos.store_backends import STORES, StoreBackend, store_backend
from tidegate import __version__

_INTERRUPTED, _TERMINATED = 130, 143


def main(argv: list[str]) -> int:
    """Run chaos as the options say; return the exit code."""
    if sys.platform != "linux":
        print("chaos finds and stops processes through /proc and pidfds: it needs Linux", file=sys.stderr)
        return 2
    options = _arguments(argv)
    plan = ChaosPlan(options.seed, seconds=options.seconds, workers=options.workers, lease=options.lease)
    directory = (options.directory or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    code = 1
    try:
        with store_backend(options.store, directory) as backend:
            run_record = _run(plan, directory, backend)
        code = _TERMINATED if run_record is None else _report(run_record, directory, options.json)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    finally:
        if code == 1:
            _log(f"store, ledgers and logs are kept in {directory}")
        elif options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    return code


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Kill, stop and cut off real workers at random, then check that nothing was lost.",
    )
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="how long faults are injected (default: 300)"
    )
    parser.add_argument("--seed", type=int, default=None, help="chooses the faults (default: a random one)")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="(default: sqlite)")
    parser.add_argument("--workers", type=int, default=4, help="worker commands (default: 4)")
    parser.add_argument(
        "--lease", type=float, default=2.0, metavar="SECONDS", help="of the workers (default: 2)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--directory", type=Path, help="keep everything there (default: only after a violation)"
    )
    options = parser.parse_args(argv)
    if options.seconds < SHORTEST_SECONDS or options.workers < 2 or options.lease < 0.5:
        parser.error(f"use --seconds {SHORTEST_SECONDS:g} or more, --workers 2 or more, --lease 0.5 or more")
    if options.directory is not None and (options.directory / "store").exists():
        parser.error(f"{options.directory} holds another run")
    if options.json is not None:
        options.json = options.json.absolute()  # before we go to another directory
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    return options


def _run(plan: ChaosPlan, directory: Path, backend: StoreBackend) -> ChaosRecord | None:
    """Run it; return its record, None if SIGTERM ended it."""
    run_id = uuid.uuid4().hex
    ours = {
        RUN: run_id,
        "TIDEGATE_DATABASE_URL": backend.url,
        "TIDEGATE_SCRATCH": str(directory / "scratch"),
        "TIDEGATE_RUN": str(directory / "run"),
        "TIDEGATE_CHAOS_DIRECTORY": str(directory),
        "TIDEGATE_CHAOS_PLAN": f"{plan.seed} {plan.workers} {plan.lease}",
        "SPT_NOENV": "1",  # where setproctitle is installed, it leaves the environment in /proc as it was
    }
    env = clean_environment() | ours
    _log(f"seed {plan.seed}, in {directory}")
    os.environ |= ours
    os.chdir(directory)  # so that no tidegate.toml of the checkout is read

    from chaos.chaos_run import ChaosRun  # which imports the application, and that reads our environment

    chaos_run = ChaosRun(plan, directory, run_id, env, backend, _log)

    async def run() -> ChaosRecord | None:
        job = asyncio.create_task(chaos_run.run(), name="chaos")
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            job.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await job
        except asyncio.CancelledError:
            if terminated:
                return None
            raise

    return asyncio.run(run())


def _report(run_record: ChaosRecord, directory: Path, path: Path | None) -> int:
    """Check the run, print the table and the violations, write the JSON; return the exit code."""
    verdict = check_chaos(run_record)
    (directory / "faults.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(run_record.fault_log.faults))
    )
    if path is not None:
        figures = report.to_plain(run_record, verdict) | {"version": __version__, "commit": _commit()}
        path.write_text(json.dumps(figures, indent=2) + "\n")
    rows = list(report.format_table(run_record, verdict))
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    for line in report.format_violations(run_record, verdict):
        print(line)
    return 1 if verdict.violations else 0


def _commit() -> str:
    """Return the commit of this checkout, marked if files differ from it; empty without git."""
    try:
        words = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
        described = subprocess.run(
            words, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return described.stdout.strip()


_began_at = time.monotonic()


def _log(text: str) -> None:
    """Log to stderr; stdout has the table."""
    print(f"{time.monotonic() - _began_at:7.1f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
