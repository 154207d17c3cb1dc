"""One run of one side, from its command to its end: its curve, its steps and its seconds."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from remuda.benchmarks import process
from remuda.benchmarks.figure import ReferenceFailedError
from remuda.benchmarks.learning.tasks import Task
from remuda.benchmarks.peers import ROOT
from remuda.plotting.progress_table import read_progress

OURS, PEER = "remuda", "stable-baselines3"
STEPS, RETURNS = "TotalEnvInteracts", "AverageTestEpRet"


class Run(msgspec.Struct, frozen=True):
    """What one run showed."""

    task: str
    side: str
    seed: int
    reached: bool
    """Whether an evaluation reached the task's `stop_value`; True where it has none."""
    env_steps: int
    wall_s: float
    """From the command to its end, evaluations included."""
    curve: list[tuple[int, float]]
    """Environment steps, and the mean return of the evaluation there."""

    @property
    def last_return(self) -> float:
        """Mean of the last three evaluations: of a single one the noise would decide."""
        return float(np.mean([value for _, value in self.curve[-3:]]))


class PeerLine(msgspec.Struct, frozen=True):
    """What the peer's script prints at its end."""

    reached: bool
    env_steps: int
    curve: list[tuple[int, float]]


def ours(task: Task, seed: int) -> Run:
    """`remuda train ALGORITHM --env ID` with the stored settings. Raises RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "remuda.cli", *arguments(task, seed), "--run-dir", str(run_dir)]
        begin_s = time.perf_counter()
        done = process.run(command, deadline_s=task.deadline_s)
        wall_s = time.perf_counter() - begin_s
        if done.status != 0:
            raise RuntimeError(f"remuda train ended with status {done.status}: {done.errors[-1_000:]}")
        curve = curve_of(run_dir / "progress.txt")
        status = msgspec.json.decode(done.output, type=_Status)
    reached = task.stop_value is None or status.reason == "stop_value"
    return Run(task.name, OURS, seed, reached, status.env_step, wall_s, curve)


def arguments(task: Task, seed: int) -> list[str]:
    """Of `remuda`, all but the run folder."""
    stop = "null" if task.stop_value is None else str(task.stop_value)
    settings = {
        "stop.stop_value": stop,
        "stop.max_env_steps": task.max_env_steps,
        "evaluator.episodes": task.episodes,
        "evaluator.interval_env_steps": task.interval_env_steps,
    }
    sets = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    return ["train", task.algorithm, "--env", task.env_id, "--seed", str(seed), "--json", *sets]


def curve_of(progress: Path) -> list[tuple[int, float]]:
    """The evaluations that progress.txt of a run folder tells of."""
    table = read_progress(progress)
    steps, returns = table[STEPS], table[RETURNS]
    return [(int(step), float(value)) for step, value in zip(steps, returns, strict=True) if np.isfinite(value)]


def theirs(task: Task, seed: int, *, root: Path = ROOT) -> Run:
    """The same by stable-baselines3 with the settings that its zoo has tuned. Raises ReferenceFailedError."""
    python = root / ".venv-peers" / PEER / "bin" / "python"
    if not python.exists():
        raise ReferenceFailedError(f"it is not installed: `make bench-peers` makes .venv-peers/{PEER}")
    options: dict[str, str | float] = {
        "algorithm": task.algorithm,
        "env": task.env_id,
        "seed": seed,
        "max-env-steps": task.max_env_steps,
        "interval-env-steps": task.interval_env_steps,
        "episodes": task.episodes,
    }
    if task.stop_value is not None:
        options["stop-value"] = task.stop_value
    script = root / "benchmarks" / "peers" / PEER / "learning.py"
    command = [str(python), str(script), *(f"--{name}={value}" for name, value in options.items())]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    begin_s = time.perf_counter()
    done = process.run(command, deadline_s=task.deadline_s, environment=environment)
    wall_s = time.perf_counter() - begin_s
    if done.status != 0:
        raise ReferenceFailedError(f"{script.name} ended with status {done.status}: {done.errors[-1_000:]}")
    line = msgspec.json.decode(done.output.strip().splitlines()[-1], type=PeerLine)
    return Run(task.name, PEER, seed, line.reached, line.env_steps, wall_s, line.curve)


class _Status(msgspec.Struct, frozen=True):
    """Of what `remuda train --json` prints."""

    reason: str | None
    env_step: int
