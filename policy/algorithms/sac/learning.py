"""Soft actor-critic, the learning side (Haarnoja et al. 2018, arXiv 1812.05905): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.policy.algorithms.sac.tempered import TemperedLearner
from remuda.policy.algorithms.twin_critics.learning import CRITICS, critics_loss, squared
from remuda.policy.algorithms.twin_critics.networks import values_of
from remuda.policy.algorithms.twin_critics.portable import PortableTwinCritics
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.torch_distributions import SquashedGaussian
from remuda.policy.transitions import Transitions


class Sac(TemperedLearner):
    """Learns values of actions with the entropy that follows them, and a policy of much of both, for a Box.

    A subclass changes it by overriding `critic_loss`, `actor_loss` or `temperature_loss`.
    """

    def portable(self) -> PortableTwinCritics:
        """See Algorithm."""
        return PortableTwinCritics(self._network, self.observation, self.action, "squashed_gaussian")

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
        return critics_loss(loss, values, target)

    def actor_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """alpha * log probability - lower critic (equation 9), at an action that the policy draws for the observation
        by normal numbers [n, k]."""
        action, log_prob = SquashedGaussian(self._network(rows.obs)).drawn_by(noise)
        with self._parts[CRITICS].constant():
            value = values_of(self._network.critics, rows.obs, action).min(dim=0).values
        alpha = self.alpha
        loss = (alpha * log_prob - value).mean()
        entropy = -log_prob.detach().mean()
        return Loss(loss, {"policy_loss": loss.detach(), "temperature": alpha, "entropy": entropy})
