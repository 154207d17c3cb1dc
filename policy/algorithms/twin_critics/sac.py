"""Soft actor-critic, the learning side (Haarnoja et al. 2018, arXiv 1812.05905; Christodoulou 2019): the rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from remuda.config.algorithms.twin_critics import SacConfig, TemperedConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.twin_critics.entries import ACTOR, sac_layout
from remuda.policy.algorithms.twin_critics.learning import (
    CRITICS,
    TEMPERATURE,
    TwinCriticLearner,
    squared,
    values_of,
)
from remuda.policy.algorithms.twin_critics.portable import PortableTwinCritics
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import Transitions
from remuda.policy.networks.tensors import masked
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.policy.torch_distributions import SquashedGaussian

Tempered = TypeVar("Tempered", bound=TemperedConfig)


class TemperedLearner(TwinCriticLearner[Tempered]):
    """Actor, critics and temperature. A subclass defines the losses of actor and critics, and may override
    `temperature_loss` and `target_entropy`."""

    @property
    def alpha(self) -> float | torch.Tensor:
        """The temperature, without a graph: fixed, or a tensor [1]."""
        fixed = self._policy.temperature
        return self._parts[TEMPERATURE].vector.exp() if fixed is None else fixed

    def _update(self, rows: Transitions, critic: Loss, actor: Loss | None) -> LearnResult:
        """Take one step each with critics, actor and temperature, or with the critics alone. The actor's metrics
        contain the policy's mean `entropy` in nats."""
        losses = {CRITICS: critic}
        if actor is not None:
            losses[ACTOR] = actor
            if TEMPERATURE in self._parts:
                losses[TEMPERATURE] = Loss(self.temperature_loss(rows, actor.metrics["entropy"]), {})
        return self._descend(losses, len(rows))

    def temperature_loss(self, rows: Transitions, entropy: float | torch.Tensor) -> torch.Tensor:
        """Loss log(alpha) (entropy - target entropy), which the authors' implementation uses for alpha (…) (equation
        18): the temperature falls while the policy's entropy is above the target."""
        assert self._network.log_temperature is not None, "a fixed temperature learns nothing"
        return (self._network.log_temperature * (entropy - self.target_entropy(rows))).sum()

    def target_entropy(self, rows: Transitions) -> float | torch.Tensor:
        """Target entropy of a learned temperature for these rows, in nats."""
        asked = self._policy.target_entropy
        return -float(self.action.outputs) if asked is None else asked


class SacLearner(TemperedLearner[SacConfig]):
    """SAC's target critics, for both kinds of actions."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, SacConfig), policy.type
        layout = sac_layout(policy, action)
        super().__init__(config, policy, observation, action, seed, layout=layout, followed="critics")


class Sac(SacLearner):
    """Learns values of actions, including the entropy of later steps, and a policy that maximises value and entropy,
    for a Box.

    A subclass may override `critic_loss`, `actor_loss` or `temperature_loss`.
    """

    def portable(self) -> PortableTwinCritics:
        seen, acted = self.observation, self.action
        return PortableTwinCritics(self._network, seen, acted, "squashed_gaussian", rewards=self._rewards)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step each with critics, actor and temperature."""
        rows = self._rows(batch)
        noise, next_noise = self._normal(len(rows), 2 * self.action.outputs).chunk(2, dim=1)
        return self._update(rows, self.critic_loss(rows, next_noise), self.actor_loss(rows, noise))

    # --- the update rule

    def critic_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """Half the weighted squared distance (equation 5) from reward + discount * (lower target critic - alpha * log
        probability), at an action that the policy draws for the next observation by normal numbers [n, k]."""
        with torch.no_grad():
            next_action, next_log_prob = SquashedGaussian(self._network(rows.next_obs)).drawn_by(noise)
            next_value = values_of(self._target, rows.next_obs, next_action).amin(dim=0)
            target = rows.reward + rows.discount * (next_value - self.alpha * next_log_prob)
        values = values_of(self._network.critics, rows.obs, rows.action)
        loss = (squared(values, target) @ (rows.weights * (0.5 / len(rows)))).sum()
        return self._critics_loss(loss, values, target)

    def actor_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """See `soft_actor_loss`."""
        outputs = self._network(rows.obs)
        with self._parts[CRITICS].constant():
            return soft_actor_loss(partial(values_of, self._network.critics, rows.obs), outputs, noise, self.alpha)


def soft_actor_loss(
    values: Callable[[torch.Tensor], torch.Tensor],
    outputs: torch.Tensor,
    noise: torch.Tensor,
    alpha: float | torch.Tensor,
) -> Loss:
    """Loss alpha * log probability - lowest critic (equation 9), at an action that the actor's outputs [n, 2 k] draw
    with normal numbers [n, k]. `values`: each critic's values [critics, n] of actions [n, k]."""
    action, log_prob = SquashedGaussian(outputs).drawn_by(noise)
    value = values(action).min(dim=0).values
    loss = (alpha * log_prob - value).mean()
    entropy = -log_prob.detach().mean()
    return Loss(loss, {"policy_loss": loss.detach(), "temperature": alpha, "entropy": entropy})


class DiscreteSac(SacLearner):
    """Soft actor-critic with a probability and two values for each counted action, so expectations are sums and
    nothing is drawn. Illegal actions have probability 0.

    A subclass may override `critic_loss`, `actor_loss` or `temperature_loss`.
    """

    def portable(self) -> PortableTwinCritics:
        return PortableTwinCritics(self._network, self.observation, self.action, "logits", rewards=self._rewards)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step each with critics, actor and temperature."""
        rows = self._rows(batch)
        values = self._network.critics(rows.obs)
        return self._update(rows, self.critic_loss(rows, values), self.actor_loss(rows, values.detach()))

    # --- the update rule

    def critic_loss(self, rows: Transitions, values: torch.Tensor) -> Loss:
        """Half the weighted squared distance (equation 4) from reward + discount * the expectation, over the policy's
        next actions, of (lower target critic - alpha * log probability) (equation 10).

        `values` [critics, n, actions] are the critics' of all actions.
        """
        with torch.no_grad():
            probs, log_probs = _probabilities(self._network(rows.next_obs), rows.next_legal)
            next_value = (probs * (self._target(rows.next_obs).amin(dim=0) - self.alpha * log_probs)).sum(dim=1)
            target = rows.reward + rows.discount * next_value
        taken = values.gather(2, rows.action.expand(len(values), -1).unsqueeze(2)).squeeze(2)
        loss = (squared(taken, target) @ rows.weights).sum() * (0.5 / len(rows))
        return self._critics_loss(loss, taken, target)

    def actor_loss(self, rows: Transitions, values: torch.Tensor) -> Loss:
        """The expectation, over the policy's actions, of (alpha * log probability - lowest critic) (equation 12), given
        the same values as constants."""
        probs, log_probs = _probabilities(self._network(rows.obs), rows.legal)
        alpha = self.alpha
        loss = (probs * (alpha * log_probs - values.amin(dim=0))).sum(dim=1).mean()
        entropy = -(probs * log_probs).detach().sum(dim=1).mean()
        return Loss(loss, {"policy_loss": loss.detach(), "temperature": alpha, "entropy": entropy})

    def target_entropy(self, rows: Transitions) -> float | torch.Tensor:
        """See TemperedLearner. A share of the largest entropy refers to the legal actions."""
        if self._policy.target_entropy is not None:
            return super().target_entropy(rows)
        largest = math.log(self.action.outputs) if rows.legal is None else rows.legal.sum(dim=1).log().mean()
        return self._policy.target_entropy_share * largest


def _probabilities(logits: torch.Tensor, legal: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the probabilities of actions [n, actions] and their logarithms. Both are 0 for illegal actions."""
    log_probs = masked(logits, legal).log_softmax(dim=1)
    return log_probs.exp(), log_probs if legal is None else log_probs.masked_fill(~legal, 0.0)
