"""Run all figures, or those named, each in a process of its own; store what they print and draw the picture."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remuda.benchmarks import picture, process
from remuda.benchmarks.machine import Machine, facts
from remuda.benchmarks.records import RESULTS, Kind, Record, everything, parse, store

HERE = Path(__file__).parent


class Options(argparse.Namespace):
    """The command line."""

    figures: list[str]
    peers: bool
    deadline_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where all that was asked for was measured, goals met or missed, and 1 where something could not be."""
    options = _parse(arguments, modules(HERE))
    kind: Kind = "peers" if options.peers else "ours"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    here = facts()
    failures: list[str] = []
    for module in options.figures:
        print(f"--- {module}", file=sys.stderr, flush=True)
        records, failure = measure(module, peers=options.peers, deadline_s=options.deadline_s, date=date, machine=here)
        if failure is not None:
            failures.append(f"{module}: {failure}")
            print(failures[-1], file=sys.stderr, flush=True)
        failures += [f"{module}: {record.reference_name}: {record.failure}" for record in records if record.failure]
        store(records, kind=kind, date=date)  # at once: hours of measuring do not hang on the last one
    _draw()
    print("".join(f"not measured: {line}\n" for line in failures), end="", file=sys.stderr)
    return 1 if failures else 0


def modules(here: Path) -> list[str]:
    """Return the files that measure something: those with a function `figures`."""
    return sorted(path.stem for path in here.glob("*.py") if "\ndef figures(" in path.read_text(encoding="utf-8"))


def measure(
    module: str, *, peers: bool, deadline_s: float, date: str, machine: Machine, package: str = "remuda.benchmarks"
) -> tuple[list[Record], str | None]:
    """Run one benchmark. Returns what it printed, and why that is not all of it; None where it is."""
    command = [sys.executable, "-m", f"{package}.{module}", *(["--peers"] if peers else [])]
    done = process.run(command, deadline_s=deadline_s, environment=dict(os.environ), show_errors=True)
    print(done.output, end="", flush=True)
    try:
        records = parse(done.output.splitlines(), date=date, machine=machine)
    except msgspec.MsgspecError as error:
        return [], f"it printed a line that is not a figure: {error}"
    if done.status is None:
        return records, f"it was not done after {deadline_s:g} s and was stopped"
    return records, f"it ended with status {done.status}" if done.status else None


def _parse(arguments: Sequence[str] | None, known: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m remuda.benchmarks", description=__doc__)
    parser.add_argument(
        "figures", nargs="*", metavar="figure", help=f"one or more of {', '.join(known)} (default: all)"
    )
    parser.add_argument("--peers", action="store_true", help="measure other systems too (`make bench-peers` has them)")
    parser.add_argument("--deadline-s", type=float, default=3600.0, help="of each figure (default: %(default)g)")
    options = parser.parse_args(arguments, namespace=Options())
    if unknown := sorted(set(options.figures) - set(known)):
        parser.error(f"there is no figure {', '.join(unknown)}; there are {', '.join(known)}")
    options.figures = options.figures or list(known)
    return options


def _draw() -> None:
    try:
        picture.draw(everything(), RESULTS / "figures.png")
    except ImportError as error:
        print(f"no picture: {error}; the `plot` extra brings matplotlib", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
