"""How many threads an update is computed with."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from remuda.config.schema import ExperimentConfig
from remuda.policy.base import Algorithm
from remuda.policy.row_plan import RowPlan
from remuda.worker.affinity import most_update_threads

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
    told = config.learner.threads
    if told is not None:
        say(f"threads: an update uses {told}, as learner.threads says")
        return told
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
