"""Soft actor-critic for counted actions, the learning side (Christodoulou 2019): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.policy.algorithms.sac.portable import PortableDiscreteSac
from remuda.policy.algorithms.sac.tempered import Found, TemperedLearner
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.masking import legal_in, masked


class DiscreteSac(TemperedLearner):
    """As Sac, but the actor gives a probability for each action and the critics a value for each, so that expectations
    are sums and nothing is drawn.

    Critics descend the weighted squared distance from reward + discount * the expectation, over the policy's next
    actions, of (lower target critic - alpha * log probability). The actor descends the expectation of (alpha * log
    probability - lower critic). Actions that environments forbid have no probability in either.
    """

    def portable(self) -> PortableDiscreteSac:
        """See Algorithm."""
        return PortableDiscreteSac(self._network, self.observation, self.action)

    @torch.no_grad()
    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of Adam each with critics, actor and temperature."""
        rows, alpha = self._rows(batch), self._alpha()
        legal, next_legal = (legal_in(batch, name, self._device) for name in ("legal", "next_legal"))
        n = len(rows)

        # One pass of the actor: the first n rows are the observations, the others the next ones.
        acted = self._actor.forward(torch.cat((rows.obs, rows.next_obs)))
        logits, next_logits = acted[-1][0].chunk(2)
        probs, log_probs = _probabilities(logits, legal)
        next_probs, next_log_probs = _probabilities(next_logits, next_legal)
        next_least = self._target_critics.forward(rows.next_obs)[-1].amin(dim=0)
        next_value = (next_probs * (next_least - alpha * next_log_probs)).sum(dim=1)
        target = rows.reward + rows.discount * next_value

        valued = self._critics.forward(rows.obs)
        taken = rows.action.expand(len(valued[-1]), -1, -1)
        values = valued[-1].gather(2, taken).squeeze(2)
        error = values - target
        by_values = error * (rows.weights / n)
        worth = alpha * log_probs - valued[-1].amin(dim=0)
        expected = (probs * worth).sum(dim=1)
        found = Found(
            values,
            target,
            error,
            critic_loss=0.5 * (by_values * error).sum(),
            policy_loss=expected.mean(),
            entropy=-(probs * log_probs).sum(dim=1).mean(),
        )

        by_all = torch.zeros_like(valued[-1]).scatter_(2, taken, by_values.unsqueeze(2))
        self._critics.backward(valued, by_all, learned=n)
        by_logits = probs * (worth - expected.unsqueeze(1)) / n  # the slope of sum(p * worth), for p = softmax(logits)
        self._actor.backward(acted, by_logits.unsqueeze(0), learned=n)
        return self._update(found, alpha, self._aim(legal))

    def _aim(self, legal: torch.Tensor | None) -> float | torch.Tensor:
        """The entropy that a learned temperature aims at: where it is a share of the largest there can be, that of the
        legal actions [n, actions]."""
        if legal is None or self._policy.target_entropy is not None:
            return self._target_entropy
        return self._policy.target_entropy_share * legal.sum(dim=1).log().mean()


def _probabilities(logits: torch.Tensor, legal: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the probabilities of actions [n, actions] and their logarithms. Both are 0 for illegal actions."""
    log_probs = masked(logits, legal).log_softmax(dim=1)
    return log_probs.exp(), log_probs if legal is None else log_probs.masked_fill(~legal, 0.0)
