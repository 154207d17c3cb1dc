"""Proximal policy optimisation, the learning side (Schulman et al. 2017): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from remuda.config.algorithms import PpoConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.learning import ActorCritic, Segments, Slopes, explained_variance
from remuda.policy.algorithms.actor_critic.returns import generalized_advantages
from remuda.policy.algorithms.actor_critic.torch_distributions import Categorical, Gaussian
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.spaces import ActionSpec, ObservationSpec


class _Steps(NamedTuple):
    """The valid slots of a batch, or a minibatch of them; each [n, …]."""

    observations: torch.Tensor
    actions: torch.Tensor
    log_prob: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    values: torch.Tensor


class _Losses(NamedTuple):
    """Of one minibatch."""

    total: torch.Tensor
    policy: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor
    log_ratio: torch.Tensor
    """float32 [n]: how far the policy has moved from the one that acted."""


class Ppo(ActorCritic):
    """Several epochs of minibatches on each batch of segments, with clipped probability ratios."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        super().__init__(config, observation, action, seed)
        assert isinstance(config.policy, PpoConfig), config.policy.type
        self._policy, self._seed = config.policy, seed

    @torch.no_grad()
    def learn(self, batch: Arrays) -> LearnResult:
        """Do a whole iteration: advantages, then `epochs` passes over `minibatches` shares of the batch."""
        remaining = self._anneal()
        segments = self._prepare(batch)
        steps, explained = self._valued(segments)
        order = np.random.default_rng((self._seed, self._updates))  # of the batch, so a resumed run goes on the same
        taken: list[_Losses] = []
        norms: list[torch.Tensor] = []
        for minibatch in self._minibatches(steps, order):
            outputs = self._outputs.forward_to_learn(minibatch.observations)
            distribution = self._distribution(outputs.policy)
            losses, slopes = self._losses(minibatch, distribution, outputs.values, clip=self._policy.clip * remaining)
            if self._policy.target_kl is not None and _divergence(losses.log_ratio) > 1.5 * self._policy.target_kl:
                break
            norms.append(self._descend(distribution, minibatch.actions, slopes))
            taken.append(losses)
        of_batch: dict[str, float | torch.Tensor] = {
            "explained_variance": explained,
            "value": steps.values / segments.reward_scale,
            "stop_iter": len(norms),
        }
        if not taken:
            return self._result(updates=0, **of_batch)
        log_ratio = torch.cat([losses.log_ratio for losses in taken])
        return self._result(
            updates=len(norms),
            total_loss=torch.stack([losses.total for losses in taken]),
            policy_loss=torch.stack([losses.policy for losses in taken]),
            value_loss=torch.stack([losses.value for losses in taken]),
            entropy=torch.stack([losses.entropy for losses in taken]),
            approx_kl=_divergence(log_ratio),
            clip_fraction=((log_ratio.exp() - 1.0).abs() > self._policy.clip * remaining).float().mean(),
            grad_norm=torch.stack(norms),
            **of_batch,
        )

    def _losses(
        self, steps: _Steps, distribution: Categorical | Gaussian, values: torch.Tensor, *, clip: float
    ) -> tuple[_Losses, Slopes]:
        """Equations 7 and 9 of the paper, and their gradient."""
        policy, n = self._policy, values.shape[0]
        log_ratio = distribution.log_prob(steps.actions) - steps.log_prob
        ratio = log_ratio.exp()
        gain = ratio * steps.advantages
        bound = ratio.clamp(1.0 - clip, 1.0 + clip) * steps.advantages
        policy_loss = -torch.minimum(gain, bound).mean()
        by_log_prob = torch.where(gain <= bound, gain, 0.0) / -n  # the slope of exp is exp; the bound has none

        errors = values - steps.returns
        squares = errors.square()
        if policy.value_clip is not None:
            moved = values - steps.values
            held = moved.clamp(-policy.value_clip, policy.value_clip)
            held_squares = (steps.values + held - steps.returns).square()
            errors = torch.where((held != moved) & (held_squares > squares), 0.0, errors)
            squares = torch.maximum(squares, held_squares)
        value_loss, entropy = squares.mean(), distribution.entropy().mean()

        total = policy_loss + policy.value_coefficient * value_loss - policy.entropy_coefficient * entropy
        slopes = Slopes(by_log_prob, 2.0 * policy.value_coefficient / n * errors, -policy.entropy_coefficient / n)
        return _Losses(total, policy_loss, value_loss, entropy, log_ratio), slopes

    def _valued(self, segments: Segments) -> tuple[_Steps, float]:
        """The valid slots with their advantages and returns, and what of the returns the values had explained."""
        values = segments.per_slot(self._outputs.values(segments.observations))
        advantages = generalized_advantages(
            segments.outcome, values, discount=self._policy.discount, gae_lambda=self._policy.gae_lambda
        )[segments.outcome.valid]
        old_values = values[:, :-1][segments.outcome.valid]
        returns = advantages + old_values
        if self._policy.normalize_advantages and len(advantages):
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        columns = (to_tensor(column, self._device) for column in (advantages, returns, old_values))
        observations = segments.observations[segments.steps]
        steps = _Steps(observations, segments.actions, segments.log_prob, *columns)
        return steps, explained_variance(old_values, returns)

    def _minibatches(self, steps: _Steps, rng: np.random.Generator) -> Iterator[_Steps]:
        """Every step once per epoch, in shares of equal size (but for one), shuffled again each epoch."""
        n = len(steps.log_prob)
        minibatches = min(self._policy.minibatches, n)
        for _ in range(self._policy.epochs if n else 0):
            if minibatches == 1:  # the whole batch, in whatever order
                yield steps
                continue
            order = to_tensor(rng.permutation(n), self._device)
            shares = [torch.tensor_split(column[order], minibatches) for column in steps]
            yield from map(_Steps, *shares)


def _divergence(log_ratio: torch.Tensor) -> torch.Tensor:
    """Estimate the Kullback-Leibler divergence of the new policy from the old without bias and never below 0."""
    return (log_ratio.expm1() - log_ratio).clamp(min=0.0).mean()
