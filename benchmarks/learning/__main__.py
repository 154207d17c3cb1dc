"""Run tasks, both sides by turns; print a line of JSON for each run and figure, store them, draw the curves."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remuda.benchmarks.figure import ReferenceFailedError
from remuda.benchmarks.learning.page import needed, stored_runs
from remuda.benchmarks.learning.runs import Run, ours, theirs
from remuda.benchmarks.learning.stored import RESULTS, picture_of, store
from remuda.benchmarks.learning.tasks import BY_NAME, Task


class Options(argparse.Namespace):
    """The command line."""

    tasks: list[str]
    peers: bool
    seeds: int | None
    max_env_steps: int | None
    draw: bool
    folder: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where all that was asked for was measured, and 1 where a peer could not be."""
    options = _parse(arguments)
    if options.draw:
        for environment in dict.fromkeys(BY_NAME[name].environment for name in options.tasks):
            picture_of(environment, options.folder)
        return 0
    failed = False
    for name in options.tasks:
        task = BY_NAME[name]
        if options.max_env_steps is not None:
            task = dataclasses.replace(task, max_env_steps=options.max_env_steps)
        known = needed(task, stored_runs(task)) or "nothing"
        print(f"{name}: stored is {known} (steps or returns; seeds)", file=sys.stderr, flush=True)
        runs, failure = measure(task, seeds=options.seeds or task.seeds, peers=options.peers)
        failed |= failure is not None
        store(task, runs, failure, options.folder)
        print(f"{name}: these are {needed(task, runs)}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def measure(task: Task, *, seeds: int, peers: bool) -> tuple[list[Run], str | None]:
    """Run each seed once by each side, by turns, beginning with the other side each time; also why a peer failed."""
    runs: list[Run] = []
    failure: str | None = None
    for seed in range(task.first_seed, task.first_seed + seeds):
        sides = [ours, theirs] if seed % 2 == 0 else [theirs, ours]
        for side in sides:
            if side is theirs and (not peers or not task.peer or failure is not None):
                continue
            try:
                runs.append(side(task, seed))
            except ReferenceFailedError as error:
                failure = str(error)
                print(f"{task.name}: no run of the peer: {error}", file=sys.stderr, flush=True)
                continue
            print(msgspec.json.encode(runs[-1]).decode(), flush=True)
    return runs, failure


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m remuda.benchmarks.learning", description=__doc__)
    known = f"one or more of {', '.join(BY_NAME)} (default: all but those of Pong)"
    parser.add_argument("tasks", nargs="*", metavar="task", help=known)
    parser.add_argument("--peers", action="store_true", help="run stable-baselines3 too (`make bench-peers` has it)")
    parser.add_argument("--draw", action="store_true", help="draw the pictures of what is stored, and run nothing")
    kept = "where runs and pictures are kept (default: with the stored ones)"
    parser.add_argument("--folder", type=Path, default=RESULTS, help=kept)
    parser.add_argument("--seeds", type=int, help="how many (default: as the task says, 3 or 5)")
    parser.add_argument("--max-env-steps", type=int, help="for a shorter run than the task says")
    options = parser.parse_args(arguments, namespace=Options())
    if unknown := sorted(set(options.tasks) - set(BY_NAME)):
        parser.error(f"there is no task {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    options.tasks = options.tasks or [name for name, task in BY_NAME.items() if task.by_default]
    return options


if __name__ == "__main__":
    sys.exit(main())
