"""Updates per second of every built-in algorithm, at the sizes of its examples, on the CPU and on a GPU.

Each algorithm first learns from the same batch on both devices: the weights must agree. The batches are real: a short
serial run of the example collects them. Random numbers of an update are drawn on the CPU for both devices. Without a
GPU only the updates per second of one thread of the CPU are printed.

    python -m remuda.benchmarks.updates                    # every case, one JSON line each
    python -m remuda.benchmarks.updates pendulum_sac       # some cases
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from remuda.benchmarks.figure import Figure, Goal, to_json
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.environments.spaces import Space
from remuda.learner.precision import device_clock
from remuda.learner.start import new_algorithm
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.runner import building, serial

EXAMPLES = Path(__file__).parents[1] / "examples"
CASES: Mapping[str, Sequence[str]] = {
    "cartpole_dqn": (),
    "cartpole_rainbow": (),
    "cartpole_r2d2": (),
    "cartpole_ppo": (),
    "hopper_ppo": (),
    "cartpole_impala": (),
    "cartpole_muzero": ("policy.precision=float32",),
    "pendulum_td3": (),
    "half_cheetah_sac": ("policy.random_env_steps=null",),
    "pong_dqn": ("buffer.capacity=4000", "buffer.min_rows=500", "collector.chunk_env_steps=128"),
    "pong_ppo": (),
    "pong_impala": (),
}
"""Examples by name, with the settings that let an update come early."""
BATCHES = 8
WARM_UP_S, MEASURED_S = 0.5, 2.0
SAME = 0.02
"""The largest accepted distance between the weights of both devices, as a share of the distance that they moved."""


class Recorder:
    """Keeps the first batches that an algorithm is given, and then asks the run to end."""

    reason = "all batches are recorded"

    def __init__(self, count: int) -> None:
        self._count = count
        self.batches: list[Arrays] = []
        self.algorithm: Algorithm | None = None

    @property
    def ending(self) -> bool:
        """Whether all batches are there."""
        return len(self.batches) >= self._count

    def make(self, config: ExperimentConfig, observation: Space, action: Space) -> Algorithm:
        """Make an algorithm whose batches are kept."""
        self.algorithm = algorithm = new_algorithm(config, observation, action)
        learn = algorithm.learn

        def recording(batch: Arrays) -> LearnResult:
            if not self.ending:
                self.batches.append({name: column.copy() for name, column in batch.items()})
            return learn(batch)

        algorithm.learn = recording  # type: ignore[method-assign]
        return algorithm


@dataclass(frozen=True)
class Recorded:
    """The first batches of a run, and the spaces that its algorithm was made for."""

    observation: ObservationSpec
    action: ActionSpec
    batches: Sequence[Arrays]


class DrawnOnCpu(TorchFunctionMode):
    """Draws the random numbers of updates on the CPU from a seed, whatever the device."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace torch.randn and its like; pass on everything else."""
        kwargs = dict(kwargs or {})
        if func is torch.randn:
            device = kwargs.pop("device", "cpu")
            return func(*args, **kwargs | {"generator": self._generator}).to(device)
        if func in (torch.randn_like, torch.rand_like):
            draw = torch.randn if func is torch.randn_like else torch.rand
            return draw(args[0].shape, generator=self._generator, dtype=args[0].dtype).to(args[0].device)
        return func(*args, **kwargs)


def configured(name: str, *settings: str, device: str = "cpu") -> ExperimentConfig:
    """Load an example so that it learns at once, in float32, on a device."""
    quiet = ("evaluator.episodes=0", "checkpoint.interval_env_steps=null", "stop.stop_value=null")
    overrides = [*quiet, *CASES[name], *settings, "learner.precision=float32", f"learner.device={device}"]
    return load_config(EXAMPLES / f"{name}.yaml", overrides=overrides).config


def record(config: ExperimentConfig, count: int) -> Recorded:
    """Run an experiment in this process until its algorithm was given so many batches."""
    recorder = Recorder(count)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(building, "new_algorithm", recorder.make):
        result = serial.run(config, serial.Start(Path(folder) / "run"), stop=recorder)
    if recorder.algorithm is None or not recorder.ending:
        raise RuntimeError(f"{config.name} made no {count} batches: {result.explanation}")
    return Recorded(recorder.algorithm.observation, recorder.algorithm.action, recorder.batches)


def made(name: str, recorded: Recorded, device: str) -> Algorithm:
    """Make the algorithm of a case as a run makes it, with seed 0."""
    return make_algorithm(configured(name, device=device), recorded.observation, recorded.action, 0)


def distance(name: str, recorded: Recorded, device: str) -> float:
    """Learn from the first batch on the CPU and on the device. Returns the distance between the weights, as a share of
    the distance that the weights of the CPU moved. Later batches would multiply differences of rounding."""
    weights: list[np.ndarray] = []
    for each in ("cpu", device):
        algorithm = made(name, recorded, each)
        before = _flat(algorithm)
        with DrawnOnCpu(seed=1), _exact():
            algorithm.learn(recorded.batches[0])
        weights += [before, _flat(algorithm)]
    if not np.array_equal(weights[0], weights[2]):
        raise RuntimeError(f"{name}: the first weights differ between cpu and {device}")
    return float(np.linalg.norm(weights[3] - weights[1]) / np.linalg.norm(weights[1] - weights[0]))


def updates_per_s(name: str, recorded: Recorded, device: str, precision: str = "float32") -> float:
    """Gradient updates per second from batches in the memory of the host."""
    algorithm = made(name, recorded, device)
    if algorithm.products is not None:
        algorithm.products.precision = "bfloat16" if precision == "bfloat16" else "float32"
    where = torch.device(device)
    for seconds in (WARM_UP_S, MEASURED_S):
        begin_s, updates, batch = device_clock(where), 0, 0
        while time.perf_counter() - begin_s < seconds:
            updates += algorithm.learn(recorded.batches[batch % len(recorded.batches)]).updates
            batch += 1
        rate = updates / (device_clock(where) - begin_s)
    return rate


def measured(names: Sequence[str], device: str) -> Iterator[Figure]:
    """Check and measure each case on the device beside one thread of the CPU."""
    torch.set_num_threads(1)
    for name in names:
        recorded = record(configured(name), BATCHES)
        reference = updates_per_s(name, recorded, "cpu")
        if device == "cpu":
            print(json.dumps({"case": name, "updates_per_s": round(reference, 2)}), flush=True)
            continue
        apart = distance(name, recorded, device)
        yield _figure(f"{name} on {device}: weights apart", "share", apart, SAME, "at most", "<= 1")
        for precision in ("float32", "bfloat16"):
            ours = updates_per_s(name, recorded, device, precision)
            label = f"{name} on {device}: updates, {precision}"
            yield _figure(label, "updates/s", ours, reference, "one thread of the CPU, float32", ">= 0")


def _figure(name: str, unit: str, ours: float, reference: float, reference_name: str, goal: str) -> Figure:
    ratio = ours / reference
    return Figure(name, unit, ours, reference, reference_name, ratio, goal, Goal.parse(goal).met(ratio), 1)


def _flat(algorithm: Algorithm) -> np.ndarray:
    return np.concatenate([values.ravel().astype(np.float64) for values in algorithm.acting_state().values()])


@contextlib.contextmanager
def _exact() -> Generator[None]:
    """Compute convolutions of a GPU in float32, as its matrix products are."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line per figure. Returns 1 if the weights of a case are too far apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    missed = 0
    for figure in measured(options.cases, options.device):
        print(to_json(figure), flush=True)
        missed += not figure.met
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
