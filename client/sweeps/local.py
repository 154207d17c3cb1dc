"""Runs of a sweep as processes of `remuda train` on this machine, several at a time."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import msgspec
from msgspec.structs import replace

from remuda.client.plots.runs import cell_number
from remuda.client.sweeps.plan import Task
from remuda.client.sweeps.record import RunRecord
from remuda.logbook import tail
from remuda.storage.run_folder import RunFolder
from remuda.wire.child_end import end_within
from remuda.wire.messages import LogPosition
from remuda.worker.process import ONE_THREAD

LOOK_S = 1.0
"""Between two checks of the progress of runs under way."""
_LAST_WORDS = 2_000
"""Characters at the end of a run's output to search for the error."""


class ProgressNews:
    """The newest numbers in a progress.txt. Each look reads the new rows alone, since a long run has megabytes."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._position = LogPosition(path.name, 0, 0)
        self._columns: list[str] = []
        self.numbers: dict[str, float | None] = {}
        """By name of a record's field; empty before the first row."""

    def look(self) -> None:
        """Read the whole rows since the last look. A file that was replaced or cut is read from its beginning. Raises
        OSError."""
        while (piece := tail.read(self._folder, self._position)).text:
            before, self._position = self._position, piece.position
            if piece.position.inode != before.inode or piece.position.offset < before.offset:
                self._columns, self.numbers = [], {}
            for line in piece.text.splitlines():
                if self._columns:
                    self._note(dict(zip(self._columns, line.split("\t"), strict=False)))
                else:
                    self._columns = line.split("\t")

    def _note(self, row: dict[str, str]) -> None:
        names = ("TotalEnvInteracts", "Time", "AverageTestEpRet")  # the last is missing without evaluations
        steps, wall_s, tested = (cell_number(row.get(name, "")) for name in names)
        if not math.isfinite(steps):
            return
        self.numbers |= {"env_step": int(steps), "wall_s": wall_s}
        if not math.isnan(tested):
            best = self.numbers.get("best_return")
            self.numbers |= {"last_return": tested, "best_return": tested if best is None else max(best, tested)}


@dataclass
class _Child:
    record: RunRecord
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    said: Path
    progress: ProgressNews


class LocalRuns:
    """Starts runs in the order of the grid, `jobs` at a time; a context manager that leaves no process behind.

    Children hold the reading end of a pipe; only this process has the writing end. When this process ends, even by
    SIGKILL, the children save and end.
    """

    def __init__(self, folder: Path, *, jobs: int) -> None:
        """The output of a run is written to `<folder>/log/<name>.txt`."""
        self._log = folder / "log"
        self._jobs = jobs
        self._waiting: list[Task] = []
        self._left_out: list[RunRecord] = []
        self._children: dict[str, _Child] = {}
        self._looked_s = 0.0
        self._lifeline: tuple[int, int] = (-1, -1)

    def begin(self, tasks: Sequence[Task]) -> Iterable[RunRecord]:
        """Take over the runs; nothing starts before the next `poll`."""
        self._waiting += tasks
        self._log.mkdir(parents=True, exist_ok=True)
        return [task.record for task in tasks]

    def poll(self) -> list[RunRecord]:
        """Record finished runs, start waiting runs, and check the progress of the rest every LOOK_S seconds."""
        ended = [self._ended(name) for name, child in list(self._children.items()) if child.process.poll() is not None]
        started, self._left_out = self._left_out, []
        while self._waiting and len(self._children) < self._jobs:
            started.append(self._start(self._waiting.pop(0)))
        now_s = time.monotonic()
        if now_s < self._looked_s + LOOK_S:
            return ended + started
        self._looked_s = now_s
        return ended + started + [self._look(child) for child in self._children.values()]

    def stop_runs(self, names: Collection[str]) -> None:
        self._left_out += [replace(task.record, state="stopped") for task in self._waiting if task.run.name in names]
        self._waiting = [task for task in self._waiting if task.run.name not in names]
        for name, child in self._children.items():
            if name in names:
                child.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask the runs under way to save and end."""
        self._waiting.clear()
        for child in self._children.values():
            child.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End everything at once."""
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)

    def __enter__(self) -> LocalRuns:
        self._lifeline = os.pipe()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for child in self._children.values():
            end_within(child.process, 0.0)
            child.output.close()
        for end in self._lifeline:
            os.close(end)

    def _start(self, task: Task) -> RunRecord:
        run = task.run
        said = self._log / f"{run.name}.txt"
        output = (self._log / f"{run.name}.json").open("w+b")
        command = [sys.executable, "-P", "-m", "remuda.cli", "train", *run.arguments]
        command += ["--run-dir", str(run.run_dir), "--on-exists", task.on_exists, "--json"]
        command += ["--lifeline", str(self._lifeline[0])]
        with said.open("wb") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**ONE_THREAD, **os.environ},
                pass_fds=(self._lifeline[0],),
                start_new_session=True,  # Ctrl-C reaches only this process, which then asks the others to end
            )
        record = replace(task.record, state="running", reason=None)
        progress = ProgressNews(RunFolder(run.run_dir).progress)
        self._children[run.name] = _Child(record, process, output, said, progress)
        return record

    def _look(self, child: _Child) -> RunRecord:
        """Read the progress of a run from its progress.txt."""
        with contextlib.suppress(OSError):  # it has not begun to write
            child.progress.look()
            child.record = replace(child.record, **child.progress.numbers)
        return child.record

    def _ended(self, name: str) -> RunRecord:
        child = self._children.pop(name)
        child.output.seek(0)
        printed = child.output.read()
        child.output.close()
        Path(child.output.name).unlink()
        if not printed:
            return replace(child.record, state="failed", reason=_why(child))
        told = cast("dict[str, Any]", msgspec.json.decode(printed))
        kept = ("state", "reason", "env_step", "train_iter", "last_return", "best_return", "wall_s")
        return replace(child.record, **{key: told[key] for key in kept})


def _why(child: _Child) -> str:
    """Return the last line of output of a run without a result."""
    lines = child.said.read_bytes()[-_LAST_WORDS:].decode(errors="replace").strip().splitlines()
    code = child.process.returncode
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{lines[-1] if lines else 'no output'} ({ended}; {child.said})"
