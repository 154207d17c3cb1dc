"""Soft actor-critic, the learning side (Haarnoja et al. 2018, arXiv 1812.05905): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.policy.algorithms.sac.portable import PortableSac
from remuda.policy.algorithms.sac.squashed import draw, slope
from remuda.policy.algorithms.sac.tempered import Found, TemperedLearner
from remuda.policy.base import Arrays, LearnResult


class Sac(TemperedLearner):
    """Learns values of actions with the entropy that follows them, and a policy of much of both, for a Box.

    Critics descend the weighted squared distance (equation 5) from reward + discount * (lower target critic - alpha *
    log probability), at an action that the policy draws for the next observation. The actor descends alpha * log
    probability - lower critic (equation 9), at an action that it draws for the observation. The temperature descends
    equation 18; see TemperedLearner.
    """

    def portable(self) -> PortableSac:
        """See Algorithm."""
        return PortableSac(self._network, self.observation, self.action)

    @torch.no_grad()
    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of Adam each with critics, actor and temperature."""
        rows, alpha = self._rows(batch), self._alpha()
        n, numbers = len(rows), self.action.outputs
        noise = self._normal(n, 2 * numbers)

        # One pass of the actor: the first n rows are the observations, the others the next ones.
        acted = self._actor.forward(torch.cat((rows.obs, rows.next_obs)))
        drawn = draw(acted[-1][0], torch.cat((noise[:, :numbers], noise[:, numbers:])))
        log_prob, next_log_prob = drawn.log_prob.chunk(2)
        next_values = self._target_critics.forward(torch.cat((rows.next_obs, drawn.action[n:]), dim=1))[-1]
        target = rows.reward + rows.discount * (next_values.amin(dim=0)[:, 0] - alpha * next_log_prob)

        # One pass of the critics: the first n rows are the actions taken, the others those that were drawn.
        actions = torch.cat((rows.action, drawn.action[:n]))
        valued = self._critics.forward(torch.cat((torch.cat((rows.obs, rows.obs)), actions), dim=1))
        values, own = valued[-1][..., 0].chunk(2, dim=1)
        least, lower = own.min(dim=0)
        error = values - target
        by_taken = error * (rows.weights / n)
        found = Found(
            values,
            target,
            error,
            critic_loss=0.5 * (by_taken * error).sum(),
            policy_loss=(alpha * log_prob - least).mean(),
            entropy=-log_prob.mean(),
        )

        by_own = torch.zeros_like(own).scatter_(0, lower.unsqueeze(0), -1.0 / n)
        by_values = torch.cat((by_taken, by_own), dim=1).unsqueeze(2)
        by_first = self._critics.backward(valued, by_values, learned=n)
        by_action = self._critics.input_gradient(by_first[:, n:], first=rows.obs.shape[1])
        by_outputs = slope(drawn, by_action, alpha / n, rows=n)
        self._actor.backward(acted, by_outputs.unsqueeze(0), learned=n)
        return self._update(found, alpha, self._target_entropy)
