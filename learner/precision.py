"""How updates are computed: in which precision, and with how many threads."""

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
"""Calls that are timed in each precision: at least so many, and until they took so long, at most so many."""


class PrecisionTrial:
    """Learns in both precisions by turns, and keeps the faster one from then on. All its updates count."""

    def __init__(
        self, learn: Learn, products: Products, *, say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        """`say` is called with the decision. `clock` gives seconds, at which all that was asked of the device is
        done."""
        self._learn, self._products = learn, products
        self._say, self._clock = say, clock
        self._calls = 0
        self._times_s: dict[Precision, list[float]] = {"bfloat16": [], "float32": []}
        """Seconds per gradient update, of each call that was timed."""
        self._timed_s: dict[Precision, float] = {"bfloat16": 0.0, "float32": 0.0}
        """Seconds of all these calls: one may have many updates."""

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
    """Set the precision of an algorithm that may have been restored from a checkpoint, and say what it is.

    Args:
        config: `learner.precision` tells, or is auto.
        algorithm: its `products` are set; nothing is done without them.
        timed: whether auto may time updates; otherwise the same machine decides the same every time.
        say: is called with a line for the log, at once, and with another when updates have decided.
        has: what a device has for products in bfloat16.

    Returns:
        What is to learn in place of the algorithm until updates have decided; None if all is decided.
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
        say("precision: auto: the first updates are computed in float32 and in bfloat16 by turns, and timed")
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
    """Seconds, once all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


LARGE = 1 << 28
"""Rows of a batch times parameters: below it sharing an update out costs more than it saves (256 rows by SAC's
networks, and those of CartPole)."""


def update_threads(
    config: ExperimentConfig,
    algorithm: Algorithm,
    plan: RowPlan,
    *,
    alone: bool,
    say: Callable[[str], None],
    most: Callable[..., int] = most_update_threads,
) -> int | None:
    """The number of torch threads for each update; None leaves it as it is.

    Networks with convolutions, and batches of more than LARGE rows times parameters, use all cores that nothing else of
    the run needs meanwhile: `say` is then called with a line for the log. The same every time, since the number of
    threads decides how sums are rounded.

    Args:
        config: the experiment; `learner.threads` beats all else.
        algorithm: whose network is looked at.
        plan: how many rows an update learns from.
        alone: serial mode.
        say: for the log.
        most: how many threads there may be.
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
    say(f"threads: an update uses {threads}, on cores that nothing else of this run needs meanwhile")
    return threads


def is_large(algorithm: Algorithm, plan: RowPlan) -> bool:
    """Whether an update may gain by several threads: convolutions, or more than LARGE rows times parameters."""
    network = algorithm.network
    convolves = any(isinstance(module, nn.Conv2d) for module in network.modules())
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return convolves or plan.rows_per_update * plan.slots_per_row * parameters >= LARGE
