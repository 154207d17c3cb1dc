"""TD3, the learning side (Fujimoto et al. 2018): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.config.algorithms.twin_critics import Td3Config
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.td3.acting import td3_layout
from remuda.policy.algorithms.td3.portable import PortableTd3
from remuda.policy.algorithms.twin_critics.learning import ACTOR, CRITICS, Rows, TwinCriticLearner
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Td3(TwinCriticLearner):
    """Learns values of actions, and an actor whose actions the first critic values, for a Box.

    Critics descend the weighted squared distance from reward + discount * lower target critic, at the target actor's
    next action with clipped noise. Every `policy_delay` updates the actor descends - first critic, at its own action,
    and the target networks follow.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, Td3Config), policy.type
        layout = td3_layout(policy, observation, action)
        super().__init__(config, observation, action, seed, layout=layout, temperature=None, followed="")
        self._policy = policy
        self._target_actor, self._target_critics = (self._target_stack(prefix) for prefix in ("actor.", "critics."))

    def portable(self) -> PortableTd3:
        """See Algorithm."""
        return PortableTd3(self._network, self.observation, self.action, noise=self._policy.exploration_noise)

    @torch.no_grad()
    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of Adam with the critics and, when it is due, one with the actor."""
        rows, n = self._rows(batch), len(batch["reward"])
        target = rows.reward + rows.discount * self._next_value(rows)
        self._updates += 1
        delayed = self._updates % self._policy.policy_delay == 0

        # One pass of the critics: the first n rows are the actions taken, the others those that the actor would take.
        acted = self._actor.forward(rows.obs) if delayed else []
        action = acted[-1][0].tanh() if delayed else rows.action[:0]
        seen, actions = torch.cat((rows.obs, rows.obs[: len(action)])), torch.cat((rows.action, action))
        valued = self._critics.forward(torch.cat((seen, actions), dim=1))
        values, own = valued[-1][:, :n, 0], valued[-1][0, n:, 0]
        error = values - target
        by_taken = error * (rows.weights * (2.0 / n))
        critic_loss = 0.5 * (by_taken * error).sum()
        policy_loss = -own.sum() / n

        by_values = torch.zeros_like(valued[-1])
        by_values[:, :n, 0] = by_taken
        by_values[0, n:, 0] = -1.0 / n
        by_first = self._critics.backward(valued, by_values, learned=n)
        if delayed:
            by_action = self._critics.input_gradient(by_first[:, n:], first=rows.obs.shape[1])
            self._actor.backward(acted, (by_action * (1.0 - action.square())).unsqueeze(0), learned=n)

        self.ranks.average(n, self._parameters.gradient, critic_loss, policy_loss)
        norms = {"grad_norm": self._step(CRITICS)}
        if delayed:
            norms["actor_grad_norm"] = self._step(ACTOR)
            norms["grad_norm"] = torch.hypot(*norms.values())
            self._follow()
        td_error = error.abs().mean(dim=0)
        metrics: dict[str, float | torch.Tensor] = {
            "cur_lr": self._learner.learning_rate,
            "critic_loss": critic_loss,
            "q_value": values[0],
            "target_q_value": target,
            "td_error": td_error,
            **norms,
        }
        return LearnResult(metrics | ({"policy_loss": policy_loss} if delayed else {}), td_error)

    def _next_value(self, rows: Rows) -> torch.Tensor:
        """The lower target critic's value of the next observations, at the target actor's action with noise: [n]."""
        clip = self._policy.target_noise_clip
        noise = self._normal(len(rows), self.action.outputs).mul_(self._policy.target_noise).clamp_(-clip, clip)
        action = self._target_actor.forward(rows.next_obs)[-1][0].tanh().add_(noise).clamp_(-1.0, 1.0)
        values = self._target_critics.forward(torch.cat((rows.next_obs, action), dim=1))[-1]
        return values.amin(dim=0)[:, 0]
