"""CrossQ, the learning side (Bhatt et al. 2024, arXiv 1902.05605): the update rule on one page."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.twin_critics.entries import crossq_layout
from remuda.policy.algorithms.twin_critics.learning import (
    ACTOR,
    CRITICS,
    PortableTwinCritics,
    critics_loss,
    squared,
    values_of,
)
from remuda.policy.algorithms.twin_critics.sac import TemperedLearner, soft_actor_loss
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.networks.batch_norm import BatchNorms, UnitWeights
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.policy.torch_distributions import SquashedGaussian
from remuda.policy.transitions import Transitions


class CrossQ(TemperedLearner[CrossQConfig]):
    """Soft actor-critic with batch-normalised networks, for a Box.

    The critics read observations and next observations in one batch, so that both have the same moments; so do the
    target critics, if any. Every `policy_delay` updates actor and temperature take a step as well. A subclass may
    override `critic_loss`, `actor_loss` or `temperature_loss`.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, CrossQConfig), policy.type
        layout, followed = crossq_layout(policy, action), None if policy.target_share is None else CRITICS
        super().__init__(config, policy, observation, action, seed, layout=layout, followed=followed)
        self._target_norms = None if followed is None else BatchNorms(self._target)
        parts = {name: self._network.get_submodule(name) for name in (CRITICS, ACTOR)}
        self._norms = {name: BatchNorms(part) for name, part in parts.items()}
        self._weights = {name: UnitWeights(part) for name, part in parts.items() if policy.normalize_weights}

    def portable(self) -> PortableTwinCritics:
        return PortableTwinCritics(self._network, self.observation, self.action, "squashed_gaussian")

    def learn(self, batch: Arrays) -> LearnResult:
        """Take a step with the critics and, if due, with actor and temperature."""
        rows = self._rows(batch)
        noise, next_noise = self._normal(len(rows), 2 * self.action.outputs).chunk(2, dim=1)
        due = (self._updates + 1) % self._policy.policy_delay == 0
        critic = self.critic_loss(rows, next_noise)
        return self._update(rows, critic, self.actor_loss(rows, noise) if due else None)

    # --- the update rule

    def critic_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """Half the weighted squared distance from reward + discount * (lower target critic - alpha * log probability),
        at an action that the policy draws for the next observation by normal numbers [n, k]. One pass of the critics
        reads both observations (figure 2); without target critics it also gives the next values."""
        with torch.no_grad():
            next_action, next_log_prob = SquashedGaussian(self._network(rows.next_obs)).drawn_by(noise)
        observations, actions = torch.cat((rows.obs, rows.next_obs)), torch.cat((rows.action, next_action))
        with self._norms[CRITICS].by_batch():
            values, next_values = values_of(self._network.critics, observations, actions).chunk(2, dim=1)
        if self._target_norms is not None:
            with torch.no_grad(), self._target_norms.by_batch():
                next_values = values_of(self._target, observations, actions).chunk(2, dim=1)[1]
        next_value = next_values.detach().amin(dim=0)
        target = rows.reward + rows.discount * (next_value - self.alpha * next_log_prob)
        loss = (squared(values, target) @ (rows.weights * (0.5 / len(rows)))).sum()
        return critics_loss(loss, values, target)

    def actor_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """See `soft_actor_loss`; the critics use their running moments."""
        with self._norms[ACTOR].by_batch():
            outputs = self._network(rows.obs)
        with self._parts[CRITICS].constant():
            return soft_actor_loss(self._network.critics, rows, outputs, noise, self.alpha)

    def _descend(self, losses: Mapping[str, Loss], rows: int) -> LearnResult:
        result = super()._descend(losses, rows)
        for name, weights in self._weights.items():
            if name in losses:
                weights.normalise()
        return result
