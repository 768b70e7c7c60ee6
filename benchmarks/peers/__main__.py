"""The command: measure Tidegate beside the chosen queues, print one table, keep every round as JSON."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from benchmarks.harness import Contestant as Run
from benchmarks.harness import Settings, say, take_turns
from benchmarks.peers import catalogue, goals, servers, table
from benchmarks.peers.catalogue import FIGURES, Contestant
from benchmarks.peers.results import Results
from benchmarks.peers.rounds import Rounds
from benchmarks.peers.servers import Store
from benchmarks.usage import Noise


def main(argv: list[str]) -> int:
    """Measure the named peers, all of them unless named; return the exit code."""
    asked = _arguments(argv)
    settings = Settings(n=asked.n, rounds=asked.rounds)
    began_at = time.time()
    with _stores(catalogue.chosen(asked.peers)) as stores:
        present = _present(catalogue.chosen(asked.peers), stores)
        measured = _measured(present, stores, settings, asked.figures)
        versions = _versions(present, stores)
    results = Results(
        [each for each in present if each.name in measured.get("noise", {})], measured, settings.n
    )
    verdicts = goals.judged(results)
    if asked.json:
        table.write_json(asked.json, results, verdicts, versions, settings, began_at)
    print(table.drawn(results, verdicts, versions, settings))
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Measure Tidegate beside other queues."
    )
    parser.add_argument(
        "--peers", type=_names(catalogue.NAMES), default=(), help=f"some of: {','.join(catalogue.NAMES)}"
    )
    parser.add_argument(
        "--figures", type=_names(FIGURES), default=FIGURES, help=f"some of: {','.join(FIGURES)}"
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
def _stores(contestants: list[Contestant]) -> Iterator[dict[str, Store]]:
    """Start the stores that these need; one that cannot be started is told and left out."""
    makers = {"postgresql": servers.postgresql, "redis": servers.redis, "sqlite": servers.sqlite}
    with ExitStack() as stack:
        started: dict[str, Store] = {}
        for name in dict.fromkeys(each.store for each in contestants):
            try:
                started[name] = stack.enter_context(makers[name]())
            except servers.NotHereError as error:
                say(f"{name} and all on it are left out: {error}")
        yield started


def _present(contestants: list[Contestant], stores: Mapping[str, Store]) -> list[Contestant]:
    """Return those that can be measured here; tell why the others cannot."""
    present: list[Contestant] = []
    for each in contestants:
        reason = catalogue.why_not(each)
        if reason:
            say(f"{each.name} is left out: {reason}")
        elif each.store in stores:
            present.append(each)
    return present


def _measured(
    contestants: list[Contestant], stores: Mapping[str, Store], settings: Settings, figures: tuple[str, ...]
) -> dict[str, dict[str, list[float]]]:
    """Let all take turns; one that fails once is told and left out of the rest, and of the table."""
    failed: set[str] = set()

    def turn(contestant: Contestant) -> Run:
        rounds = Rounds(contestant, stores[contestant.store], settings.n, figures)

        def run() -> dict[str, float]:
            if contestant.name in failed:
                return {}
            noise = Noise()
            try:
                return rounds.round() | {"noise": noise.cores()}
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                say(f"{contestant.name} failed and is left out:\n{error}")
                failed.add(contestant.name)
                return {}

        return run

    measured = take_turns(settings.rounds, {each.name: turn(each) for each in contestants})
    return {
        value: {name: found for name, found in by_name.items() if name not in failed}
        for value, by_name in measured.items()
    }


def _versions(contestants: list[Contestant], stores: Mapping[str, Store]) -> dict[str, str]:
    """Return the version of every queue and server."""
    queues = {each.package: catalogue.version(each) for each in contestants}
    return queues | {name: store.version for name, store in stores.items() if store.version}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
