"""One run of one side, from its command to its end: its curve, its steps and its seconds."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from remuda.benchmarks import process
from remuda.benchmarks.figure import ReferenceFailedError
from remuda.benchmarks.learning.beside import Stopwatch
from remuda.benchmarks.learning.tasks import Task
from remuda.benchmarks.peers import ROOT
from remuda.client.plots.runs import read_progress
from remuda.logbook.series import read_series
from remuda.storage.run_folder import RunFolder

OURS, PEER = "remuda", "stable-baselines3"
STEPS, RETURNS = "TotalEnvInteracts", "AverageTestEpRet"
PROGRESS = "progress.txt"
QUIET_CORES = 0.25
"""A run beside more work of others than that says nothing about seconds."""


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
    other_cores: float | None = None
    """Cores that other programs kept busy meanwhile, on average; None: not measured."""
    processor_s: float | None = None
    """Processor time of all its processes; None: not measured."""

    @property
    def last_return(self) -> float:
        """Mean of the last three evaluations: of a single one the noise would decide."""
        return float(np.mean([value for _, value in self.curve[-3:]]))

    @property
    def quiet(self) -> bool:
        """Whether its seconds can be compared, as far as is known."""
        return self.other_cores is None or self.other_cores <= QUIET_CORES


class PeerLine(msgspec.Struct, frozen=True):
    """What the peer's script prints at its end."""

    reached: bool
    env_steps: int
    curve: list[tuple[int, float]]


def ours(task: Task, seed: int) -> Run:
    """Run `remuda train` or `remuda launch` with the task's settings. Raises RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "remuda.cli", *arguments(task, seed), "--run-dir", str(run_dir)]
        stopwatch = Stopwatch()
        done = process.run(command, deadline_s=task.deadline_s)
        took = stopwatch.took()
        if done.status != 0:
            raise RuntimeError(f"remuda {task.command} ended with status {done.status}: {done.errors[-1_000:]}")
        curve = curve_of(run_dir, task.policies)
        env_steps = max(moment.env_step for moment in read_series(RunFolder(run_dir).series))
    goal = task.stop_value
    reached = goal is None or any(value >= goal for _, value in curve)
    return Run(task.name, OURS, seed, reached, env_steps, took.wall_s, curve, took.other_cores, took.processor_s)


def arguments(task: Task, seed: int) -> list[str]:
    """Of `remuda`, all but the run folder."""
    stop = "null" if task.stop_value is None else str(task.stop_value)
    settings = [
        f"stop.stop_value={stop}",
        f"stop.max_env_steps={task.max_env_steps}",
        f"evaluator.episodes={task.episodes}",
        f"evaluator.interval_env_steps={task.interval_env_steps}",
        *task.overrides,
    ]
    sets = [argument for setting in settings for argument in ("--set", setting)]
    taken = [task.algorithm, "--env", task.env_id] if task.config is None else [str(ROOT / task.config)]
    return [task.command, *taken, "--seed", str(seed), *sets]


def curve_of(run_dir: Path, policies: tuple[str, ...] = ()) -> list[tuple[int, float]]:
    """The evaluations that progress.txt of a run folder tells of; of several policies the lowest return, since a run
    ends when all of them have learned."""
    folders = [run_dir / "log" / name for name in policies] or [run_dir]
    curves = [_evaluations(folder / PROGRESS) for folder in folders]
    shared = set[int].intersection(*(set(curve) for curve in curves))
    return [(step, min(curve[step] for curve in curves)) for step in sorted(shared)]


def _evaluations(progress: Path) -> dict[int, float]:
    table = read_progress(progress)
    steps, returns = table[STEPS], table[RETURNS]
    return {int(step): float(value) for step, value in zip(steps, returns, strict=True) if np.isfinite(value)}


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
    stopwatch = Stopwatch()
    done = process.run(command, deadline_s=task.deadline_s, environment=environment)
    took = stopwatch.took()
    if done.status != 0:
        raise ReferenceFailedError(f"{script.name} ended with status {done.status}: {done.errors[-1_000:]}")
    line = msgspec.json.decode(done.output.strip().splitlines()[-1], type=PeerLine)
    return Run(
        task.name, PEER, seed, line.reached, line.env_steps, took.wall_s, line.curve, took.other_cores, took.processor_s
    )
