"""The command: measure Tidegate and the chosen queues, print one table, store every round as JSON."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from benchmarks.harness import Contestant as Run
from benchmarks.harness import Rounds as Measured
from benchmarks.harness import Settings, log_progress, run_in_turns
from benchmarks.peers import catalogue, goals, servers, table
from benchmarks.peers.catalogue import FIGURES, USUAL_FIGURES, Contestant
from benchmarks.peers.results import Results
from benchmarks.peers.rounds import Rounds
from benchmarks.peers.servers import PeerStore
from benchmarks.usage import BackgroundLoad


def main(argv: list[str]) -> int:
    """Measure the named peers, or all if none is named; return the exit code."""
    asked = _arguments(argv)
    settings = Settings(n=asked.n, rounds=asked.rounds)
    began_at = time.time()
    contestants = catalogue.select_contestants(asked.peers)
    with _stores(contestants) as stores:
        present = _present(contestants, stores)
        versions = _versions(present, stores)

        def kept(measured: Measured) -> Results:
            """Return the results so far; keep them, since the next round may be cut short."""
            results = Results.complete(present, measured, settings.n)
            if asked.json:
                table.write_json(
                    asked.json, results, goals.evaluate_goals(results), versions, settings, began_at
                )
            return results

        turns = {each.name: _turn(each, stores[each.store], settings.n, asked.figures) for each in present}
        results = kept(run_in_turns(settings.rounds, turns, on_round=kept))
    print(table.format_table(results, goals.evaluate_goals(results), versions, settings))
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Measure Tidegate beside other queues."
    )
    parser.add_argument(
        "--peers", type=_names(catalogue.NAMES), default=(), help=f"some of: {','.join(catalogue.NAMES)}"
    )
    parser.add_argument(
        "--figures",
        type=_names(FIGURES),
        default=USUAL_FIGURES,
        help=f"some of: {','.join(FIGURES)} (default: all but held, which takes minutes)",
    )
    parser.add_argument("--json", metavar="FILE", help="write machine, versions and every round there")
    parser.add_argument("--n", type=int, default=20_000, help="tasks drained in a round (default: 20,000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each queue (default: 5)")
    asked = parser.parse_args(argv)
    if asked.n < 100 or asked.rounds < 1:
        parser.error("use --n 100 or more and --rounds 1 or more")
    return asked


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of names with commas between."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(filter(None, text.split(",")))
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}; choose from {', '.join(known)}")
        return tuple(name for name in known if name in names)

    return read


@contextmanager
def _stores(contestants: list[Contestant]) -> Iterator[dict[str, PeerStore]]:
    """Start the stores that these need; log and leave out one that cannot be started."""
    makers = {"postgresql": servers.postgresql, "redis": servers.redis, "sqlite": servers.sqlite}
    with ExitStack() as stack:
        started: dict[str, PeerStore] = {}
        for name in dict.fromkeys(each.store for each in contestants):
            try:
                started[name] = stack.enter_context(makers[name]())
            except servers.NotInstalledError as error:
                log_progress(f"{name} and all on it are left out: {error}")
        yield started


def _present(contestants: list[Contestant], stores: Mapping[str, PeerStore]) -> list[Contestant]:
    """Return those that can be measured here; log why the others cannot."""
    present: list[Contestant] = []
    for each in contestants:
        reason = catalogue.reason_unavailable(each)
        if reason:
            log_progress(f"{each.name} is left out: {reason}")
        elif each.store in stores:
            present.append(each)
    return present


def _turn(contestant: Contestant, store: PeerStore, n: int, figures: tuple[str, ...]) -> Run:
    """Return a function that runs one round of it. After a failure, log it and skip all further rounds."""
    rounds = Rounds(contestant, store, n, figures)
    has_failed = False

    def run() -> dict[str, float]:
        nonlocal has_failed
        if has_failed:
            return {}
        noise = BackgroundLoad()
        try:
            return rounds.round() | {"noise": noise.cores()}
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            log_progress(f"{contestant.name} failed and is left out:\n{error}")
            has_failed = True
            return {}

    return run


def _versions(contestants: list[Contestant], stores: Mapping[str, PeerStore]) -> dict[str, str]:
    """Return the version of every queue and server."""
    queues = {each.package: catalogue.version(each) for each in contestants}
    return queues | {name: store.version for name, store in stores.items() if store.version}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
