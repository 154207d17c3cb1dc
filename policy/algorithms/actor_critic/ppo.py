"""Proximal policy optimisation, the learning side (Schulman et al. 2017): the update rule on one page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.learning import (
    ActorCritic,
    Losses,
    Seen,
    Segments,
    explained_variance,
)
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.network_learner import shuffled
from remuda.policy.networks.recurrent_networks import Unrolled
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.returns import Floats, generalized_advantages
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Steps(NamedTuple):
    """Valid slots of a batch or of a minibatch, [n, …]."""

    observations: Seen
    actions: torch.Tensor
    log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    values: torch.Tensor
    legal: torch.Tensor | None
    """bool [n, actions]; None: all are legal."""

    def at(self, observations: Seen, indices: torch.Tensor) -> Steps:
        """Select steps by index, with these observations."""
        actions, log_prob, advantages, returns, values = (column.index_select(0, indices) for column in self[1:6])
        legal = None if self.legal is None else self.legal.index_select(0, indices)
        return Steps(observations, actions, log_prob, advantages, returns, values, legal)

    def split(self, sizes: list[int]) -> Iterator[Steps]:
        """Split into runs of neighbouring steps with these sizes."""
        assert isinstance(self.observations, torch.Tensor)
        columns = (torch.split(column, sizes) for column in (self.observations, *self[1:6]))
        legal = repeat(None) if self.legal is None else torch.split(self.legal, sizes)
        return map(Steps, *columns, legal)


class _GradientStep(NamedTuple):
    """Result of a gradient step."""

    means: dict[str, torch.Tensor]
    """See Losses.means."""
    log_ratio: torch.Tensor
    grad_norm: torch.Tensor


def policy_loss(ratio: torch.Tensor, advantages: torch.Tensor, *, clip: float) -> torch.Tensor:
    """Equation 7 of the paper, to be descended: a ratio of probabilities beyond 1 ± `clip` gains nothing. All [n].

    With costs C = -A the larger of ratio * C and the clipped ratio * C is ratio * C, but at least (1 - clip) C for
    C > 0 and (1 + clip) C for C < 0.
    """
    costs = -advantages
    return (ratio * costs).clamp(min=torch.sub(costs, costs.abs(), alpha=clip)).mean()


def value_loss(
    values: torch.Tensor, returns: torch.Tensor, old_values: torch.Tensor, *, clip: float | None
) -> torch.Tensor:
    """Mean squared error (equation 9). With `clip`, the larger of two errors: of the value, and of the value held
    within `clip` of the old value. All [n]."""
    if clip is None:
        mean: torch.Tensor = torch.ops.aten.mse_loss(values, returns)  # one node of the graph
        return mean
    held = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum((values - returns).square(), (held - returns).square()).mean()


class Ppo(ActorCritic):
    """Several epochs of minibatches on each batch of segments, with clipped probability ratios.

    Each step descends policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy (equation 9).
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        super().__init__(config, observation, action, seed)
        assert isinstance(config.policy, PpoConfig), config.policy.type
        self._policy, self._seed = config.policy, seed

    def learn(self, batch: Arrays) -> LearnResult:
        """Do a whole iteration: advantages, then `epochs` passes over `minibatches` shares of the batch."""
        clip = self._policy.clip
        segments = self._prepare(batch)
        steps, explained = self._with_advantages(segments)
        order = np.random.default_rng((self._seed, self._updates))  # of the batch, so a resumed run goes on the same
        gradient_steps: list[_GradientStep] = []
        for minibatch in self._minibatches(steps, segments, order):
            step = self._step(minibatch, clip=clip)
            if step is None:
                break
            gradient_steps.append(step)
        of_batch: dict[str, float | torch.Tensor] = {
            "explained_variance": explained,
            "value": steps.values * segments.reward_std,
            "stop_iter": len(gradient_steps),
        }
        if not gradient_steps:
            return self._result(updates=0, **of_batch)
        means, log_ratios, norms = zip(*gradient_steps, strict=True)
        log_ratio = torch.cat(log_ratios)
        approx_kl, clip_fraction = divergence(log_ratio), ((log_ratio.exp() - 1.0).abs() > clip).float().mean()
        self.ranks.average(len(log_ratio), approx_kl, clip_fraction)
        return self._result(
            means,
            updates=len(gradient_steps),
            approx_kl=approx_kl,
            clip_fraction=clip_fraction,
            grad_norm=torch.stack(norms),
            **of_batch,
        )

    def loss(self, steps: Steps, *, clip: float) -> Losses:
        """Equation 9 of the paper, for a minibatch."""
        outputs, values = self._evaluate(steps.observations)
        log_prob, entropies = self._distribution(outputs, steps.legal).of(steps.actions)
        log_ratio = log_prob - steps.log_prob
        of_policy = policy_loss(log_ratio.exp(), steps.advantages, clip=clip)
        of_values = value_loss(values, steps.returns, steps.values, clip=self._policy.value_clip)
        entropy = self._mean_entropy(entropies)
        total = self._total(of_policy, of_values, entropy)
        known = (values.detach(), steps.returns, steps.advantages)
        return Losses(total, of_policy, of_values, entropy, log_ratio, *known)

    def _step(self, steps: Steps, *, clip: float) -> _GradientStep | None:
        """Take one gradient step on a minibatch; None if the policy has already moved too far."""
        losses = self.loss(steps, clip=clip)
        log_ratio = losses.log_ratio.detach()
        if self._policy.target_kl is not None:
            moved = divergence(log_ratio)
            self.ranks.average(len(log_ratio), moved)
            if moved > 1.5 * self._policy.target_kl:
                return None
        means = losses.means
        grad_norm = self._descend(losses.total, len(log_ratio), *means.values())
        return _GradientStep(means, log_ratio, grad_norm)

    def _with_advantages(self, segments: Segments) -> tuple[Steps, float]:
        """Return the valid slots with advantages and returns, and the explained variance of the returns."""
        advantages, returns, values = self._estimates(segments)
        of_actions, brought, valued = (to_tensor(column, self._device) for column in (advantages, returns, values))
        steps = Steps(
            segments.of_steps, segments.actions, segments.log_prob, of_actions, brought, valued, segments.legal
        )
        return steps, explained_variance(self.ranks, values, returns)

    def _with_new_advantages(self, steps: Steps, segments: Segments) -> Steps:
        """The same with the newest values. `steps.values` stay: changes are clipped from before the update."""
        advantages, returns, _ = self._estimates(segments)
        device = self._device
        return steps._replace(advantages=to_tensor(advantages, device), returns=to_tensor(returns, device))

    def _estimates(self, segments: Segments) -> tuple[Floats, Floats, Floats]:
        """Compute advantages, returns and values of the valid slots by the newest network, [n] each."""
        config, valid = self._policy, segments.outcome.valid
        values = segments.per_slot(self._values(segments.observations))
        advantages: Floats = generalized_advantages(
            segments.outcome, values, discount=config.discount, gae_lambda=config.gae_lambda
        )[valid]
        of_steps = values[:, :-1][valid]
        returns = advantages + of_steps
        if config.normalize_advantages:
            advantages = self._normalised(advantages)
        return advantages, returns, of_steps

    def _minibatches(self, steps: Steps, segments: Segments, rng: np.random.Generator) -> Iterator[Steps]:
        """Yield every step once per epoch, in shares of the whole batch whose sizes differ by at most one, shuffled in
        each epoch. Of each share, this rank's steps, possibly none."""
        minibatches = min(self._policy.minibatches, segments.whole)
        for epoch in range(self._policy.epochs if segments.whole else 0):
            if epoch and self._policy.recompute_advantages:
                steps = self._with_new_advantages(steps, segments)
            if isinstance(steps.observations, Unrolled):
                shares = steps.observations.shares(segments.outcome.valid, self._policy.minibatches, rng)
                yield from (steps.at(share, drawn) for share, drawn in shares)
                continue
            if minibatches == 1:  # the whole batch, in whatever order
                yield steps
                continue
            own = len(steps.log_prob)
            order, sizes = shuffled(rng, whole=segments.whole, first=segments.first, own=own, shares=minibatches)
            drawn = to_tensor(order, self._device)
            yield from steps.at(steps.observations.index_select(0, drawn), drawn).split(sizes)


def divergence(log_ratio: torch.Tensor) -> torch.Tensor:
    """Estimate the Kullback-Leibler divergence between old and new policy, unbiased and never below 0, from the log
    ratios [n] of the old policy's actions."""
    return (log_ratio.expm1() - log_ratio).clamp(min=0.0).mean()
