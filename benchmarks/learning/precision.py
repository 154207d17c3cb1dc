"""PPO, DQN and SAC in float32 and in bfloat16: whether the curves lie on top of each other."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from remuda.benchmarks import process
from remuda.benchmarks.machine import Machine, facts
from remuda.client.plots.runs import FloatArray, read_progress
from remuda.config.learning import Precision

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "learning"
ENVIRONMENTS: Final = {"ppo": "CartPole-v1", "dqn": "CartPole-v1", "sac": "Pendulum-v1"}
"""Of each algorithm; what else there is to say stands in configs/precision_<algorithm>.yaml."""
PRECISIONS: Sequence[Precision] = ("float32", "bfloat16")
SEEDS = 5
DEADLINE_S = 600.0
_COLOURS: Final = {"float32": "#1f5f99", "bfloat16": "#c4661f"}


class Curve(msgspec.Struct, frozen=True):
    """A run: what its evaluations gave."""

    algorithm: str
    precision: Precision
    seed: int
    env_steps: tuple[int, ...]
    returns: tuple[float, ...]
    """Means over the episodes of each evaluation."""
    wall_s: float

    @property
    def area(self) -> float:
        """The mean return over all evaluations: how soon it learned, and whether it stayed."""
        return statistics.fmean(self.returns)


class Comparison(msgspec.Struct, frozen=True):
    """What both precisions gave, over all seeds."""

    algorithm: str
    float32: float
    """The mean area of the curves."""
    bfloat16: float
    spread: float
    """The standard deviation of the areas in float32 over seeds."""
    apart: float
    """The difference of the means, in standard errors of it (Welch); beyond 2 it would hardly be chance."""


class Report(msgspec.Struct, frozen=True):
    """The JSON file."""

    day: str
    machine: Machine
    comparisons: tuple[Comparison, ...]
    curves: tuple[Curve, ...]


def run(algorithm: str, precision: Precision, seed: int) -> Curve:
    """Train in a process of its own. Raises RuntimeError if that fails."""
    config = ROOT / "configs" / f"precision_{algorithm}.yaml"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "remuda.cli", "train", str(config), "--run-dir", f"{folder}/run"]
        command += ["--seed", str(seed), "--set", f"learner.precision={precision}"]
        done = process.run(command, deadline_s=DEADLINE_S)
        if done.status != 0:
            raise RuntimeError(f"{' '.join(command)} ended with status {done.status}: {done.errors[-1_000:]}")
        table = read_progress(Path(folder) / "run" / "progress.txt")
    return curve(algorithm, precision, seed, table["TotalEnvInteracts"], table["AverageTestEpRet"], table["Time"])


def curve(
    algorithm: str, precision: Precision, seed: int, env_steps: FloatArray, returns: FloatArray, time_s: FloatArray
) -> Curve:
    """The rows of progress.txt in which there is an evaluation."""
    known = np.isfinite(returns)
    return Curve(
        algorithm,
        precision,
        seed,
        tuple(int(step) for step in env_steps[known]),
        tuple(float(each) for each in returns[known]),
        float(time_s[-1]),
    )


def compared(algorithm: str, curves: Sequence[Curve]) -> Comparison:
    """Compare the areas of an algorithm's curves."""
    areas = {
        precision: [each.area for each in curves if (each.algorithm, each.precision) == (algorithm, precision)]
        for precision in PRECISIONS
    }
    full, lower = areas["float32"], areas["bfloat16"]
    means = statistics.fmean(full), statistics.fmean(lower)
    error = sum(statistics.variance(each) / len(each) for each in (full, lower)) ** 0.5
    return Comparison(algorithm, *means, statistics.stdev(full), (means[1] - means[0]) / error if error else 0.0)


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Draw the mean of each precision over its seeds, and each seed faintly, one picture per algorithm. Needs the
    `plot` extra."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    # Any: matplotlib's own annotations leave every **kwargs unknown.
    picture: Any = Picture(figsize=(5.5 * len(ENVIRONMENTS), 4), layout="constrained")
    FigureCanvasAgg(picture)
    every = picture.subplots(1, len(ENVIRONMENTS), squeeze=False)[0]
    for axes, (algorithm, environment) in zip(every, ENVIRONMENTS.items(), strict=True):
        for precision in PRECISIONS:
            mine = [each for each in curves if (each.algorithm, each.precision) == (algorithm, precision)]
            for each in mine:
                axes.plot(each.env_steps, each.returns, color=_COLOURS[precision], alpha=0.2, linewidth=1)
            length = min(len(each.returns) for each in mine)
            mean = np.mean([each.returns[:length] for each in mine], axis=0)
            axes.plot(mine[0].env_steps[:length], mean, color=_COLOURS[precision], linewidth=2, label=precision)
        axes.set_title(f"{environment}, {algorithm}")
        axes.set_xlabel("environment steps")
        axes.set_ylabel("mean return of an evaluation")
        axes.grid(color="#dddddd")
        axes.legend()
    picture.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    """Entry point of `python -m remuda.benchmarks.learning.precision`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each algorithm in each precision; at least 2")
    seeds = parser.parse_args().seeds
    curves: list[Curve] = []
    for seed in range(seeds):
        for algorithm in ENVIRONMENTS:
            for precision in PRECISIONS:
                curves.append(run(algorithm, precision, seed))
                newest = curves[-1]
                told = f"mean return {newest.area:.1f}, last {newest.returns[-1]:.1f}, {newest.wall_s:.1f} s"
                print(f"{algorithm} {precision} seed {seed}: {told}", file=sys.stderr, flush=True)
    comparisons = tuple(compared(algorithm, curves) for algorithm in ENVIRONMENTS)
    for each in comparisons:
        print(msgspec.json.encode(each).decode(), flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = Report(date.today().isoformat(), facts(), comparisons, tuple(curves))
    (RESULTS / "precision.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    draw(curves, RESULTS / "precision.png")


if __name__ == "__main__":
    main()
