"""IMPALA, the learning side (Espeholt et al. 2018): the update rule on one page."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from remuda.config.algorithms.actor_critic import ImpalaConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.learning import ActorCritic, Losses, Segments, explained_variance
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.returns import Floats, divergence, vtrace
from remuda.policy.spaces import ActionSpec, ObservationSpec

ROUNDING = 1e-4
"""Log ratios below this may be rounding errors: the learning policy and the acting policy are then the same."""


def policy_loss(log_prob: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """The loss of the policy gradient, section 4.2 of the paper. Advantages hold the importance weights and are
    constant. All [n]."""
    return (log_prob * -advantages).mean()


def value_loss(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean squared error; targets are constant. All [n]."""
    mean: torch.Tensor = torch.ops.aten.mse_loss(values, targets)  # one node of the graph
    return mean


def within(advantages: torch.Tensor, log_ratio: torch.Tensor, *, clip: float) -> torch.Tensor:
    """Leave out the actions that the policy favours or avoids enough already: their advantages become 0.

    Their ratio of probabilities is beyond 1 ± `clip`, on the side to which the advantage pushes. The clipped loss of
    PPO (Schulman et al. 2017, equation 7) is flat there. All [n].
    """
    ratio = log_ratio.exp()
    beyond = torch.where(advantages > 0, ratio > 1 + clip, ratio < 1 - clip)
    return advantages.masked_fill(beyond, 0.0)


class _GradientStep(NamedTuple):
    """Result of a gradient step."""

    losses: Losses
    means: dict[str, torch.Tensor]
    """See Losses.means."""
    estimates: tuple[Floats, Floats]
    """Values and their targets [n], on the host."""
    moved: torch.Tensor
    """See Impala._moved."""
    grad_norm: torch.Tensor


class Impala(ActorCritic):
    """One gradient step, or `epochs`, on each batch of segments; V-trace corrects for the age of the acting policy.

    Descends policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy. With `clip` and several
    epochs this is asynchronous PPO (Petrenko et al. 2020, arXiv 2006.11751).
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        super().__init__(config, observation, action, seed)
        assert isinstance(config.policy, ImpalaConfig), config.policy.type
        self._policy = config.policy

    def learn(self, batch: Arrays) -> LearnResult:
        """Take `epochs` optimizer steps on `loss`."""
        segments = self._prepare(batch)
        if not segments.whole:
            return self._result()
        first = self._step(segments)
        steps = [first, *(self._step(segments, first.losses) for _ in range(1, self._policy.epochs))]
        approx_kl, clip_fraction = torch.stack([step.moved for step in steps]).unbind(1)
        return self._result(
            [step.means for step in steps],
            updates=len(steps),
            approx_kl=approx_kl,
            clip_fraction=clip_fraction,
            explained_variance=explained_variance(self.ranks, *first.estimates),
            value=first.losses.values * segments.reward_std,
            grad_norm=torch.stack([step.grad_norm for step in steps]),
        )

    def loss(self, segments: Segments, first: Losses | None = None) -> Losses:
        """The losses of section 4.2 of the paper, for a batch. `first`: losses of the batch's first step, whose
        advantages and targets are kept. Targets that moved with every step made all values of Pong equal."""
        outputs, of_all = self._evaluate(segments.observations)
        distribution = self._distribution(outputs.index_select(0, segments.steps), segments.legal)
        log_prob, entropies = distribution.of(segments.actions)
        values = of_all.index_select(0, segments.steps)
        log_ratio = log_prob.detach() - segments.log_prob
        trace = self._traced(segments, of_all, log_ratio) if first is None else (first.advantages, first.targets)
        advantages, targets = trace
        clip = self._policy.clip
        pushed = advantages if clip is None else within(advantages, log_ratio, clip=clip)
        of_policy, of_values = policy_loss(log_prob, pushed), value_loss(values, targets)
        entropy = self._mean_entropy(entropies)
        total = self._total(of_policy, of_values, entropy)
        return Losses(total, of_policy, of_values, entropy, log_ratio, values.detach(), targets, advantages)

    def _step(self, segments: Segments, first: Losses | None = None) -> _GradientStep:
        """Take one optimizer step on the whole batch."""
        losses = self.loss(segments, first)
        # Read before the backward pass, which nothing waits for then.
        log_ratio, values, targets = torch.stack((losses.log_ratio, losses.values, losses.targets)).cpu().numpy()
        moved = self._moved(log_ratio)
        means = losses.means
        grad_norm = self._descend(losses.total, len(segments.steps), *means.values(), moved)
        return _GradientStep(losses, means, (values, targets), moved, grad_norm)

    def _traced(
        self, segments: Segments, values: torch.Tensor, log_ratio: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages and value targets [n] by V-trace, given the values of all observations [B * (T + 1)]."""
        valid = segments.outcome.valid
        of_slots = np.zeros(valid.shape, np.float32)
        of_slots[valid] = log_ratio.cpu().numpy()
        trace = vtrace(
            segments.outcome,
            segments.per_slot(values),
            of_slots,
            discount=self._policy.discount,
            rho_clip=self._policy.rho_clip,
            c_clip=self._policy.c_clip,
        )
        advantages = trace.advantages[valid]
        if self._policy.normalize_advantages:
            advantages = self._normalised(advantages)
        return to_tensor(advantages, self._device), to_tensor(trace.targets[valid], self._device)

    def _moved(self, log_ratio: Floats) -> torch.Tensor:
        """Divergence between acting and newest policy, and share of clipped weights, as means over the steps [n]: a
        tensor [2]."""
        if not len(log_ratio):
            return torch.zeros(2)
        clip = self._policy.clip
        beyond = log_ratio if clip is None else np.abs(log_ratio)
        largest = self._policy.rho_clip if clip is None else 1.0 + clip
        return torch.tensor([divergence(log_ratio), float((beyond > math.log(largest) + ROUNDING).mean())])
