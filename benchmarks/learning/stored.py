"""What runs have shown, in files: one for each task, and a picture of each environment with all its tasks."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remuda.benchmarks.learning.picture import Shown, draw
from remuda.benchmarks.learning.runs import Run
from remuda.benchmarks.learning.summary import figures
from remuda.benchmarks.learning.tasks import Task
from remuda.benchmarks.machine import Machine, facts
from remuda.storage.atomic import write_bytes

RESULTS = Path(__file__).resolve().parents[1] / "results" / "learning"


class Head(msgspec.Struct, frozen=True):
    """The first line of a task's file."""

    date: str
    machine: Machine
    task: Task
    failure: str | None
    """Why the peer could not be run."""


def store(task: Task, runs: Sequence[Run], failure: str | None, folder: Path = RESULTS) -> None:
    """Write `<task>.jsonl` (first the machine, then each run, then the figures), and draw the environment again."""
    folder.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines: list[object] = [Head(date, facts(), task, failure), *runs]
    for figure in figures(task, runs):
        lines.append(figure)
        print(msgspec.json.encode(figure).decode(), flush=True)
    encoded = b"".join(msgspec.json.encode(one) + b"\n" for one in lines)
    write_bytes(folder / f"{task.name}.jsonl", encoded, durable=False)
    picture_of(task.environment, folder)


def picture_of(environment: str, folder: Path = RESULTS) -> None:
    """Draw `<environment>.png` of all its tasks that are stored, or say on standard error why not."""
    shown = [read(path) for path in sorted(folder.glob(f"{environment}_*.jsonl"))]
    if not shown:
        return
    try:
        draw(shown, folder / f"{environment}.png")
    except ImportError as error:
        print(f"no picture: {error}; the `plot` extra brings matplotlib", file=sys.stderr)


def read(path: Path) -> Shown:
    """A task's file. Raises msgspec.ValidationError for any other."""
    first, *others = path.read_bytes().splitlines()
    head = msgspec.json.decode(first, type=Head)
    lines: list[dict[str, object]] = [msgspec.json.decode(line) for line in others]
    return Shown(head.task, [msgspec.convert(line, Run) for line in lines if "side" in line])
