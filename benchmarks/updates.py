"""Updates of every built-in algorithm at the sizes of its examples, on the CPU and on a GPU: weights, waits and rates.

Each algorithm first learns from the same batch on both devices: the weights must agree. The batches are real: a short
serial run of the example collects them. Random numbers of an update are drawn on the CPU for both devices. A part of
`remuda.benchmarks.gpu`.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from remuda.benchmarks.figure import Figure, Goal
from remuda.benchmarks.plain_updates import plain
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.environments.spaces import Space
from remuda.learner.checkpoint import new_algorithm
from remuda.learner.precision import device_clock
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.runner import building, serial

EXAMPLES = Path(__file__).parents[1] / "examples"
CASES: Mapping[str, Sequence[str]] = {
    "cartpole_dqn": (),
    "cartpole_rainbow": (),
    "cartpole_r2d2": (),
    "cartpole_pqn": (),
    "cartpole_sac": (),
    "cartpole_ppo": (),
    "hopper_ppo": (),
    "cartpole_impala": (),
    "cartpole_muzero": ("policy.precision=float32",),
    "pendulum_td3": (),
    "pendulum_crossq": (),
    "half_cheetah_sac": ("policy.random_env_steps=null",),
    "pong_dqn": ("buffer.capacity=4000", "buffer.min_rows=500", "collector.chunk_env_steps=128"),
    "pong_ppo": (),
    "pong_impala": (),
}
"""Examples by name, with the settings that let an update come early."""
BATCHES = 4
WARM_UP = 0.25
"""Share of the measured seconds before them."""
ONE_THREAD, PLAIN = "one thread of the CPU, float32", "a plain torch loop, float32"
SAME = 0.02
"""The largest accepted distance between the weights of both devices, as a share of the distance that they moved."""


class Recorder:
    """Keeps the first batches that an algorithm is given instead of learning, and then asks the run to end."""

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

        def recording(batch: Arrays) -> LearnResult:
            if not self.ending:
                self.batches.append({name: column.copy() for name, column in batch.items()})
            return LearnResult({})

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


def updates_per_s(name: str, recorded: Recorded, device: str, *, seconds: float, precision: str = "float32") -> float:
    """Gradient updates per second from batches in the memory of the host."""
    algorithm = made(name, recorded, device)
    if algorithm.products is not None:
        algorithm.products.precision = "bfloat16" if precision == "bfloat16" else "float32"
    return _rate(lambda batch: algorithm.learn(batch).updates, recorded, device, seconds)


def plain_updates_per_s(name: str, recorded: Recorded, device: str, *, seconds: float) -> float | None:
    """The same of a plain torch loop, in float32; None if there is none for this algorithm."""
    update = plain(configured(name, device=device), made(name, recorded, device))
    return None if update is None else _rate(update.learn, recorded, device, seconds)


def _rate(learn: Callable[[Arrays], int], recorded: Recorded, device: str, seconds: float) -> float:
    where, rate = torch.device(device), 0.0
    for length_s in (WARM_UP * seconds, seconds):
        begin_s, updates, batch = device_clock(where), 0, 0
        while not updates or time.perf_counter() - begin_s < length_s:
            updates += learn(recorded.batches[batch % len(recorded.batches)])
            batch += 1
        rate = updates / (device_clock(where) - begin_s)
    return rate


def waits(name: str, recorded: Recorded, device: str) -> int:
    """Number of times that the host waits for a GPU while it learns from a batch."""
    algorithm = made(name, recorded, device)
    algorithm.learn(recorded.batches[0])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            algorithm.learn(recorded.batches[1])
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(one.message) for one in found)


def measured(names: Sequence[str], device: str, *, seconds: float) -> Iterator[Figure]:
    """Check each case on the device against the CPU, and measure it for so many seconds beside one thread of the CPU
    and a plain torch loop."""
    torch.set_num_threads(1)
    for name in names:
        recorded, case = record(configured(name), BATCHES), f"{name} on {device}"
        yield _figure(f"{case}: weights apart", "share", distance(name, recorded, device), SAME, "at most", "<= 1")
        if device != "cpu":
            yield _figure(f"{case}: waits", "per batch", waits(name, recorded, device), 1.0, "one per batch", ">= 0")
        yield from _rates(name, recorded, device, seconds)


def _rates(name: str, recorded: Recorded, device: str, seconds: float) -> Iterator[Figure]:
    references: dict[str, float | None] = {PLAIN: plain_updates_per_s(name, recorded, device, seconds=seconds)}
    if device != "cpu":
        references[ONE_THREAD] = updates_per_s(name, recorded, "cpu", seconds=seconds)
    for precision in ("float32",) if device == "cpu" else ("float32", "bfloat16"):
        ours = updates_per_s(name, recorded, device, seconds=seconds, precision=precision)
        for reference_name, reference in references.items():
            if reference is not None:
                label = f"{name} on {device}: updates, {precision}"
                yield _figure(label, "updates/s", ours, reference, reference_name, ">= 0")


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
