"""Runs of a sweep as processes of this machine: `remuda train`, some at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import msgspec
from msgspec.structs import replace

from remuda.plotting.errors import PlotError
from remuda.plotting.progress_table import read_progress
from remuda.storage.run_folder import RunFolder
from remuda.sweeping.record import RunRecord
from remuda.sweeping.sweep import Task

LOOK_S = 1.0
"""Between two looks at the progress of runs under way."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LAST_WORDS = 2_000
"""Characters at the end of what a run said in which its error is looked for."""


@dataclass
class _Child:
    record: RunRecord
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    said: Path


class LocalRuns:
    """Starts runs in the order of the grid, `jobs` at a time; a context manager that leaves no process behind.

    Each child holds the reading end of a pipe whose writing end only this process has: when this process ends, however
    it ends, they save and end too.
    """

    def __init__(self, folder: Path, *, jobs: int) -> None:
        """What runs say goes to `<folder>/log/<name>.txt`."""
        self._log = folder / "log"
        self._jobs = jobs
        self._waiting: list[Task] = []
        self._children: dict[str, _Child] = {}
        self._looked_s = 0.0
        self._lifeline: tuple[int, int] = (-1, -1)

    def begin(self, tasks: Sequence[Task]) -> Iterable[RunRecord]:
        """Nothing starts before the first `poll`."""
        self._waiting = list(tasks)
        self._log.mkdir(parents=True, exist_ok=True)
        return [task.record for task in tasks]

    def poll(self) -> list[RunRecord]:
        """Take note of runs that are over, start others in their place, and look at the rest now and then."""
        ended = [self._ended(name) for name, child in list(self._children.items()) if child.process.poll() is not None]
        started: list[RunRecord] = []
        while self._waiting and len(self._children) < self._jobs:
            started.append(self._start(self._waiting.pop(0)))
        now_s = time.monotonic()
        if now_s < self._looked_s + LOOK_S:
            return ended + started
        self._looked_s = now_s
        return ended + started + [self._look(child) for child in self._children.values()]

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
            child.process.wait()
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
                env={**_ONE_THREAD, **os.environ},
                pass_fds=(self._lifeline[0],),
                start_new_session=True,  # Ctrl-C reaches only this process, which then asks the others to end
            )
        record = replace(task.record, state="running", reason=None)
        self._children[run.name] = _Child(record, process, output, said)
        return record

    def _look(self, child: _Child) -> RunRecord:
        """How far a run is, by its progress.txt."""
        folder = RunFolder(self._log.parent / child.record.run_dir)
        with contextlib.suppress(PlotError):  # it has not begun to write
            columns = read_progress(folder.progress)
            steps, wall_s = columns["TotalEnvInteracts"], columns["Time"]
            evaluated = columns.get("AverageTestEpRet")  # missing where there are no evaluations
            returns = [] if evaluated is None else [value for value in evaluated.tolist() if value == value]
            if len(steps):
                child.record = replace(
                    child.record,
                    env_step=int(steps[-1]),
                    wall_s=float(wall_s[-1]),
                    last_return=returns[-1] if returns else None,
                    best_return=max(returns) if returns else None,
                )
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
    """What a run said last that told nothing else of how it ended."""
    lines = child.said.read_bytes()[-_LAST_WORDS:].decode(errors="replace").strip().splitlines()
    code = child.process.returncode
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{lines[-1] if lines else 'it said nothing'} ({ended}; {child.said})"
