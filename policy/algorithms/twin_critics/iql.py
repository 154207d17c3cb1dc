"""Implicit Q-learning, the learning side (Kostrikov et al. 2021, arXiv 2110.06169): the update rule on one page."""

from __future__ import annotations

import torch

from remuda.config.algorithms.twin_critics import IqlConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.twin_critics.entries import ACTOR, unit_layout
from remuda.policy.algorithms.twin_critics.learning import (
    CRITICS,
    STATE_VALUE,
    TwinCriticLearner,
    squared,
    values_of,
)
from remuda.policy.algorithms.twin_critics.portable import PortableTwinCritics
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import Transitions
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Iql(TwinCriticLearner[IqlConfig]):
    """Learns the value of the better actions in the data, never asks for the value of an action that is not in the
    data, and lets the actor imitate the better actions, for a Box.

    A subclass may override `value_loss`, `critic_loss` or `actor_loss`.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, IqlConfig), policy.type
        layout = unit_layout(policy, action)
        super().__init__(config, policy, observation, action, seed, layout=layout, followed=CRITICS)

    def portable(self) -> PortableTwinCritics:
        noise, rewards = self._policy.exploration_noise, self._rewards
        seen, acted = self.observation, self.action
        return PortableTwinCritics(self._network, seen, acted, "unit_action", noise=noise, rewards=rewards)

    def learn(self, batch: Arrays) -> LearnResult:
        """Update the value, the critics and the actor, a step each."""
        rows = self._rows(batch)
        values = self._network.value_of(rows.obs)
        with torch.no_grad():
            target = values_of(self._target, rows.obs, rows.action).amin(dim=0)
        losses = {STATE_VALUE: self.value_loss(rows, values, target), CRITICS: self.critic_loss(rows)}
        losses[ACTOR] = self.actor_loss(rows, target - values.detach())
        return self._descend(losses, len(rows))

    # --- the update rule

    def value_loss(self, rows: Transitions, values: torch.Tensor, target: torch.Tensor) -> Loss:
        """Loss of the values [n] of observations: weighted squared distance from the lower target critic [n],
        `expectile` where the value is too low, 1 - `expectile` where the value is too high (equation 5)."""
        error = target - values
        share = torch.where(error > 0.0, self._policy.expectile, 1.0 - self._policy.expectile)
        loss = (share * rows.weights) @ error.square() / len(rows)
        return Loss(loss, {"state_value": self._in_own_rewards(values.detach()), "value_loss": loss.detach()})

    def critic_loss(self, rows: Transitions) -> Loss:
        """Loss of the critics: their weighted squared distance from reward + discount * value of the next observation
        (equation 6)."""
        with torch.no_grad():
            target = rows.reward + rows.discount * self._network.value_of(rows.next_obs)
        values = values_of(self._network.critics, rows.obs, rows.action)
        loss = (squared(values, target) @ rows.weights).sum() / len(rows)
        return self._critics_loss(loss, values, target)

    def actor_loss(self, rows: Transitions, advantages: torch.Tensor) -> Loss:
        """Loss of the actor: squared distance from the actions in the data, times e^(advantage_weight * advantage), at
        most `largest_weight` (equation 7, for a normal distribution of fixed width). Advantages are divided by their
        root mean square in the batch, so that the size of the rewards does not matter."""
        size = advantages.square().mean().sqrt().clamp(min=1e-8)
        shares = (self._policy.advantage_weight * advantages / size).exp().clamp(max=self._policy.largest_weight)
        distance = (self._network(rows.obs).tanh() - rows.action).square().sum(dim=1)
        loss = shares @ distance / len(rows)
        return Loss(loss, {"policy_loss": loss.detach(), "advantage": self._in_own_rewards(advantages)})
