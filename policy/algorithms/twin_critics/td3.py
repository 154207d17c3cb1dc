"""TD3, the learning side (Fujimoto et al. 2018): the update rule on one page."""

from __future__ import annotations

import torch

from remuda.config.algorithms.twin_critics import Td3Config
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.twin_critics.entries import ACTOR, unit_layout
from remuda.policy.algorithms.twin_critics.learning import (
    CRITICS,
    TwinCriticLearner,
    squared,
    values_of,
)
from remuda.policy.algorithms.twin_critics.portable import PortableTwinCritics
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import Transitions
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Td3(TwinCriticLearner[Td3Config]):
    """Learns values of actions, and an actor that maximises the first critic, for a Box.

    Every `policy_delay` updates the actor takes a step as well, and the target networks follow. A subclass may override
    `critic_loss` or `actor_loss`.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, Td3Config), policy.type
        layout = unit_layout(policy, action)
        super().__init__(config, policy, observation, action, seed, layout=layout, followed="")
        self._target_actor, self._target_critics = map(self._target.get_submodule, (ACTOR, CRITICS))

    def portable(self) -> PortableTwinCritics:
        noise, rewards = self._policy.exploration_noise, self._rewards
        seen, acted = self.observation, self.action
        return PortableTwinCritics(self._network, seen, acted, "unit_action", noise=noise, rewards=rewards)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take a step with the critics and, if due, with the actor."""
        rows = self._rows(batch)
        losses = {CRITICS: self.critic_loss(rows, self._normal(len(rows), self.action.outputs))}
        if (self._updates + 1) % self._policy.policy_delay == 0:
            losses[ACTOR] = self.actor_loss(rows)
        return self._descend(losses, len(rows))

    # --- the update rule

    def critic_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """Return the loss of the critics: their weighted squared distance from the target (equations 14 and 15).

        The target is reward + discount * lower target critic of the target actor's next action plus clipped noise.
        `noise`: normal numbers [n, k], to be scaled and clipped.
        """
        clip = self._policy.target_noise_clip
        with torch.no_grad():
            smoothing = (self._policy.target_noise * noise).clamp(-clip, clip)
            next_action = (self._target_actor(rows.next_obs)[0].tanh() + smoothing).clamp(-1.0, 1.0)
            next_value = values_of(self._target_critics, rows.next_obs, next_action).amin(dim=0)
            target = rows.reward + rows.discount * next_value
        values = values_of(self._network.critics, rows.obs, rows.action)
        loss = (squared(values, target) @ rows.weights).sum() / len(rows)
        return self._critics_loss(loss, values, target)

    def actor_loss(self, rows: Transitions) -> Loss:
        """Return the loss of the actor: minus the first critic's value of the actor's action (algorithm 1)."""
        action = self._network(rows.obs).tanh()
        with self._parts[CRITICS].constant():
            loss = -values_of(self._network.critics, rows.obs, action)[0].mean()
        return Loss(loss, {"policy_loss": loss.detach()})
