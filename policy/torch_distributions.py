"""Distributions of actions for learning. For acting see remuda.policy.acting.distributions.

Log probabilities and entropies are mostly computed together, as one node of autograd's graph: as single operations they
would take a third of an update of PPO.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch.nn import functional

from remuda.policy.acting.distributions import LOG_STD_MAX, LOG_STD_MIN, runs_of
from remuda.policy.networks.one_node import require_one_derivative

_LOG_2_PI = math.log(2.0 * math.pi)
_SQUASHED = 0.5 * _LOG_2_PI + 2.0 * math.log(2.0)
"""Constant part of the log density, per squashed number."""
_tanh_backward, _hardtanh_backward = torch.ops.aten.tanh_backward, torch.ops.aten.hardtanh_backward
_SMALLEST = torch.finfo(torch.float32).min
"""Keeps 0 * log 0 from being no number."""


class Likelihood(NamedTuple):
    """Log probabilities of actions, and entropies."""

    log_prob: torch.Tensor
    """Log probability per action: float32 [rows]."""
    entropy: torch.Tensor
    """Entropy per distribution, in nats: float32 [rows]."""


class Categorical:
    """An index of n per row, by logits float32 [rows, n]."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._logits = logits

    def of(self, actions: torch.Tensor) -> Likelihood:
        """The likelihood of indices int64 [rows]."""
        return Likelihood(*_of_categorical(self._logits, actions))


class MultiCategorical:
    """Independent indices per row, an index per component: logits float32 [rows, sum of counts], in the order of the
    components."""

    def __init__(self, logits: torch.Tensor, counts: tuple[int, ...]) -> None:
        """`counts`: number of values of each component."""
        self._rows = len(logits)
        self._runs = [(Categorical(logits[:, run.logits].reshape(-1, run.values)), run) for run in runs_of(counts)]

    def of(self, actions: torch.Tensor) -> Likelihood:
        """The likelihood of indices int64 [rows, components]: log probabilities and entropies are sums over the
        components."""
        each = [one.of(actions[:, run.components].reshape(-1)) for one, run in self._runs]
        return Likelihood(*(self._summed(numbers) for numbers in zip(*each, strict=True)))

    def _summed(self, numbers: tuple[torch.Tensor, ...]) -> torch.Tensor:
        own = zip(numbers, self._runs, strict=True)
        return torch.cat([each.reshape(self._rows, run.number) for each, (_, run) in own], dim=1).sum(dim=1)


def categorical(logits: torch.Tensor, counts: tuple[int, ...]) -> Categorical | MultiCategorical:
    """As remuda.policy.acting.distributions.categorical."""
    return MultiCategorical(logits, counts) if counts else Categorical(logits)


class Gaussian:
    """Independent normal numbers: mean float32 [rows, k], logarithm of the standard deviation float32 [k]."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self._mean, self._log_std = mean, log_std

    def of(self, actions: torch.Tensor) -> Likelihood:
        """The likelihood of numbers [rows, k]: log densities and differential entropies, summed over k."""
        return Likelihood(*_of_gaussian(self._mean, self._log_std, actions))


class SquashedGaussian:
    """Independent normal numbers brought to -1 … 1 by tanh: outputs float32 [rows, 2 k], k means before tanh, then k
    logarithms of standard deviations, which are held within LOG_STD_MIN … LOG_STD_MAX."""

    def __init__(self, outputs: torch.Tensor) -> None:
        self._outputs = outputs

    def drawn_by(self, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map standard normal `noise` [rows, k] to actions [rows, k] and their log densities [rows]."""
        return _squashed(self._outputs, noise)


Distribution = Categorical | MultiCategorical | Gaussian
"""Distribution of a policy."""


class _CategoricalNode(torch.autograd.Function):
    """log p of an index, and -sum p log p. With p = softmax(logits): d log p_a / d logit_i = [a = i] - p_i, and
    d entropy / d logit_i = -p_i (log p_i + entropy)."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs = torch.log_softmax(logits, dim=1)
        probs, indices = log_probs.exp(), actions.unsqueeze(1)
        log_probs.clamp_(min=_SMALLEST)
        expected = torch.linalg.vecdot(probs, log_probs)
        ctx.set_materialize_grads(False)
        ctx.parts = log_probs, probs, indices, expected
        return log_probs.gather(1, indices).squeeze(1), -expected

    @staticmethod
    def backward(ctx: Any, *by: torch.Tensor | None) -> Any:
        require_one_derivative()
        by_log_prob, by_entropy = by
        log_probs, probs, indices, expected = ctx.parts
        gradient = None
        if by_log_prob is not None:
            chosen = by_log_prob.unsqueeze(1)
            gradient = (probs * -chosen).scatter_add_(1, indices, chosen)
        if by_entropy is not None:
            surprise = log_probs - expected.unsqueeze(1)
            of_entropy = surprise.mul_(probs).mul_(-by_entropy.unsqueeze(1))
            gradient = of_entropy if gradient is None else gradient.add_(of_entropy)
        return gradient, None


class _GaussianNode(torch.autograd.Function):
    """The log density of numbers, and the entropy. With z = (x - mean) / std: d log p / d mean = z / std, and
    d log p / d log std = z² - 1; d entropy / d log std = 1."""

    @staticmethod
    def forward(
        ctx: Any, mean: torch.Tensor, log_std: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        inverse = torch.exp(-log_std)
        distance = (actions - mean).mul_(inverse)
        constant = log_std.sum() + 0.5 * len(log_std) * _LOG_2_PI
        ctx.set_materialize_grads(False)
        ctx.parts = inverse, distance
        log_prob = torch.linalg.vecdot(distance, distance).mul_(-0.5).sub_(constant)
        return log_prob, (constant + 0.5 * len(log_std)).expand(len(mean))

    @staticmethod
    def backward(ctx: Any, *by: torch.Tensor | None) -> Any:
        require_one_derivative()
        by_log_prob, by_entropy = by
        inverse, distance = ctx.parts
        by_mean, by_log_std = None, distance.new_zeros(len(inverse))
        if by_log_prob is not None:
            by_each = by_log_prob.unsqueeze(1) * distance
            by_log_std = (by_each * distance).sum(0).sub_(by_log_prob.sum())
            by_mean = by_each.mul_(inverse)
        if by_entropy is not None:
            by_log_std.add_(by_entropy.sum())
        return by_mean, by_log_std, None


class _SquashedNode(torch.autograd.Function):
    """The action a = tanh(u) of u = mean + std * noise, and its log density.

    The log density is that of u minus the logarithm of the slope of tanh, log(1 - a²), written as
    2 (log 2 - u - softplus(-2 u)), which stays finite if a is rounded to 1. For a beta of -2 torch's softplus is
    -softplus(-2 u) / 2. Besides d a / d u = 1 - a², d log p / d u = 2 a, and d log p / d log std = -1 for constant u.
    """

    @staticmethod
    def forward(ctx: Any, outputs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = outputs.chunk(2, dim=1)
        held = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        spread = held.exp().mul_(noise)
        before = mean + spread
        action = before.tanh()
        of_tanh = torch.sub(before, functional.softplus(before, beta=-2.0), alpha=2.0)  # u + softplus(-2 u)
        of_normal = held.add_(noise.square(), alpha=0.5).add_(_SQUASHED)
        ctx.set_materialize_grads(False)
        ctx.parts = log_std, spread, action.detach()
        return action, of_tanh.mul_(2.0).sub_(of_normal).sum(dim=1)

    @staticmethod
    def backward(ctx: Any, *by: torch.Tensor | None) -> Any:
        require_one_derivative()
        by_action, by_log_prob = by
        log_std, spread, action = ctx.parts
        by_before = torch.zeros_like(action) if by_action is None else _tanh_backward(by_action, action)
        if by_log_prob is not None:
            by_before = torch.addcmul(by_before, by_log_prob.unsqueeze(1), action, value=2.0)
        by_log_std = by_before * spread
        if by_log_prob is not None:
            by_log_std.sub_(by_log_prob.unsqueeze(1))
        return torch.cat((by_before, _hardtanh_backward(by_log_std, log_std, LOG_STD_MIN, LOG_STD_MAX)), dim=1), None


_of_categorical = cast("Callable[..., tuple[torch.Tensor, torch.Tensor]]", _CategoricalNode.apply)
_of_gaussian = cast("Callable[..., tuple[torch.Tensor, torch.Tensor]]", _GaussianNode.apply)
_squashed = cast("Callable[..., tuple[torch.Tensor, torch.Tensor]]", _SquashedNode.apply)
