"""Soft actor-critic for counted actions, the learning side (Christodoulou 2019): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.policy.algorithms.sac.tempered import TemperedLearner
from remuda.policy.algorithms.twin_critics.learning import critics_loss, squared
from remuda.policy.algorithms.twin_critics.portable import PortableTwinCritics
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.networks.tensors import masked
from remuda.policy.transitions import Transitions


class DiscreteSac(TemperedLearner):
    """As Sac, but the actor gives a probability for each action and the critics a value for each, so that expectations
    are sums and nothing is drawn. Actions that environments forbid have no probability.

    A subclass changes it by overriding `critic_loss`, `actor_loss` or `temperature_loss`.
    """

    def portable(self) -> PortableTwinCritics:
        """See Algorithm."""
        return PortableTwinCritics(self._network, self.observation, self.action, "logits")

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
        return critics_loss(loss, taken, target)

    def actor_loss(self, rows: Transitions, values: torch.Tensor) -> Loss:
        """The expectation, over the policy's actions, of (alpha * log probability - lower critic) (equation 12), given
        the same values as constants."""
        probs, log_probs = _probabilities(self._network(rows.obs), rows.legal)
        alpha = self.alpha
        loss = (probs * (alpha * log_probs - values.amin(dim=0))).sum(dim=1).mean()
        entropy = -(probs * log_probs).detach().sum(dim=1).mean()
        return Loss(loss, {"policy_loss": loss.detach(), "temperature": alpha, "entropy": entropy})

    def target_entropy(self, rows: Transitions) -> float | torch.Tensor:
        """See TemperedLearner: where it is a share of the largest there can be, that of the legal actions."""
        if rows.legal is None or self._policy.target_entropy is not None:
            return super().target_entropy(rows)
        return self._policy.target_entropy_share * rows.legal.sum(dim=1).log().mean()


def _probabilities(logits: torch.Tensor, legal: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the probabilities of actions [n, actions] and their logarithms. Both are 0 for illegal actions."""
    log_probs = masked(logits, legal).log_softmax(dim=1)
    return log_probs.exp(), log_probs if legal is None else log_probs.masked_fill(~legal, 0.0)
