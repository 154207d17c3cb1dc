"""Precision and number of threads of updates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from remuda.config.learning import Precision
from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Algorithm, Arrays, LearnResult
from remuda.policy.networks.precision import LEAST_MULTIPLICATIONS, Hardware, Products, hardware
from remuda.policy.row_plan import RowPlan
from remuda.worker.affinity import most_update_threads

Learn = Callable[[Arrays], LearnResult]

CLEARLY = 1.1
"""bfloat16 must be this much faster: timings on a busy machine vary."""
FEWEST, MOST, ENOUGH_S = 2, 20, 0.2
"""Timed calls per precision: at least FEWEST, at most MOST, until they took ENOUGH_S."""


class PrecisionTrial:
    """Learns alternately in both precisions, and then keeps the faster one. All updates count."""

    def __init__(
        self, learn: Learn, products: Products, *, say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """`say` is called with the decision. `clock` gives seconds, after all work of the device is done."""
        self._learn, self._products = learn, products
        self._say, self._clock = say, clock
        self._calls = 0
        self._times_s: dict[Precision, list[float]] = {"bfloat16": [], "float32": []}
        """Seconds per gradient update, of each timed call."""
        self._timed_s: dict[Precision, float] = {"bfloat16": 0.0, "float32": 0.0}
        """Total seconds of the timed calls, each with one or more updates."""

    def __call__(self, batch: Arrays) -> LearnResult:
        """Learn from a batch, as Algorithm.learn does."""
        if self._products.decided is not None:
            return self._learn(batch)
        precision: Precision = "float32" if self._calls % 2 else "bfloat16"
        self._products.precision = precision
        begin_s = self._clock()
        result = self._learn(batch)
        elapsed_s = self._clock() - begin_s
        self._calls += 1
        if self._calls > 2 and result.updates:  # the first of each allocates
            self._times_s[precision].append(elapsed_s / result.updates)
            self._timed_s[precision] += elapsed_s
        self._decide()
        return result

    def _decide(self) -> None:
        if not self._products.lowered:
            _take(self._products, "float32", f"no product of an update has {_LEAST} multiplications", self._say)
            return
        if not all(self._is_enough(precision) for precision in self._times_s):
            return
        # other work on the machine can only add time
        lower_s, full_s = min(self._times_s["bfloat16"]), min(self._times_s["float32"])
        why = f"an update takes {full_s * 1e3:.2f} ms in float32 and {lower_s * 1e3:.2f} ms in bfloat16"
        _take(self._products, "bfloat16" if lower_s * CLEARLY < full_s else "float32", why, self._say)

    def _is_enough(self, precision: Precision) -> bool:
        calls = len(self._times_s[precision])
        return calls >= FEWEST and (self._timed_s[precision] >= ENOUGH_S or calls >= MOST)


def choose_precision(
    config: ExperimentConfig,
    algorithm: Algorithm,
    *,
    timed: bool,
    say: Callable[[str], None],
    has: Callable[[torch.device], Hardware] = hardware,
) -> Learn | None:
    """Set the precision of a new or restored algorithm, and log it.

    Sets `algorithm.products`, if any. With `timed`, auto may time updates; otherwise the decision is the same every
    time on one machine. `say` gets a line for the log, and another after a decision by timing. Returns a replacement of
    `algorithm.learn` until timing has decided; None if the precision is decided.
    """
    products, configured = algorithm.products, config.learner.precision
    if products is None:
        return None
    if configured != "auto":
        products.precision, products.decided = configured, None
        say(_line(configured, "as the config says"))
        return None
    found = has(products.device)
    if products.decided is not None:
        _take(products, products.decided, "as was decided when the run began", say)
    elif found is Hardware.NOTHING:
        _take(products, "float32", f"{products.device.type} has no instructions for bfloat16", say)
    elif timed:
        say("precision: auto: the first updates are computed alternately in float32 and bfloat16, and timed")
        return PrecisionTrial(algorithm.learn, products, say=say, clock=partial(device_clock, products.device))
    elif found is Hardware.FASTER:
        _take(products, "bfloat16", f"large products take less time on this {products.device.type}; none is timed", say)
    else:
        _take(products, "float32", "nothing is timed", say)
    return None


def _take(products: Products, precision: Precision, why: str, say: Callable[[str], None]) -> None:
    products.precision = products.decided = precision
    say(_line(precision, f"auto: {why}"))


_LEAST = f"more than {LEAST_MULTIPLICATIONS}"


def _line(precision: Precision, why: str) -> str:
    if precision == "float32":
        return f"precision: products in float32 ({why})"
    return f"precision: products of {_LEAST} multiplications in bfloat16, the rest in float32 ({why})"


def device_clock(device: torch.device) -> float:
    """Seconds, after all work of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


LARGE = 1 << 28
"""Rows of a batch times parameters; below this size one thread is faster (256 rows by SAC's
networks, and CartPole's)."""


def update_threads(
    config: ExperimentConfig,
    algorithm: Algorithm,
    plan: RowPlan,
    *,
    alone: bool,
    say: Callable[[str], None],
    most: Callable[..., int] = most_update_threads,
) -> int | None:
    """Return the number of torch threads for each update; None: unchanged.

    Networks with convolutions, and batches above LARGE, use all cores left over by the rest of the run; `say` logs the
    number. The number is the same every time, since rounding of sums depends on it; `most` is its limit.
    `learner.threads` overrides the choice. `alone`: serial mode.
    """
    if config.learner.device != "cpu":
        return None
    configured = config.learner.threads
    if configured is not None:
        say(f"threads: an update uses {configured}, as learner.threads says")
        return configured
    if not is_large(algorithm, plan):
        return None
    threads = most(config, alone=alone)
    if threads == 1:
        return None
    say(f"threads: an update uses {threads}, on cores that the rest of this run does not need")
    return threads


def is_large(algorithm: Algorithm, plan: RowPlan) -> bool:
    """True if an update may gain by several threads: convolutions, or more than LARGE rows times parameters."""
    network = algorithm.network
    convolves = any(isinstance(module, nn.Conv2d) for module in network.modules())
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return convolves or plan.rows_per_update * plan.slots_per_row * parameters >= LARGE
