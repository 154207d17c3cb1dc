"""CrossQ, the learning side (Bhatt et al. 2024, arXiv 1902.05605): the update rule on one page.

Its categorical critics are those of XQC (Palenicek et al. 2025, arXiv 2509.25174). With hyperspherical layers it is
SimBaV2 (Lee et al. 2025, arXiv 2502.15280).
"""

from __future__ import annotations

import torch

from remuda.config.algorithms.crossq import CrossQConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.twin_critics.entries import ACTOR, VALUE_LIMIT, crossq_layout
from remuda.policy.algorithms.twin_critics.learning import (
    CRITICS,
    TwinCriticNetwork,
    outputs_of,
)
from remuda.policy.algorithms.twin_critics.portable import PortableTwinCritics
from remuda.policy.algorithms.twin_critics.sac import TemperedLearner, soft_actor_loss
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import Transitions
from remuda.policy.networks.batch_norm import BatchNorms
from remuda.policy.networks.torch_networks import RewardScale
from remuda.policy.return_distributions import Categorical, Expectation, ReturnDistribution
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.policy.torch_distributions import SquashedGaussian


def return_distribution(config: CrossQConfig, device: torch.device) -> ReturnDistribution:
    """Make the distribution of the critics' outputs."""
    return Expectation() if config.atoms is None else Categorical(config.atoms, -VALUE_LIMIT, VALUE_LIMIT, device)


class CrossQ(TemperedLearner[CrossQConfig]):
    """Soft actor-critic with normalised networks, for a Box.

    With batch normalisation the critics read observations and next observations in one batch, so that both have the
    same moments; so do the target critics, if any. With `atoms` they learn distributions of scaled returns, as in XQC.
    Every `policy_delay` updates actor and temperature take a step as well. A subclass may override `critic_loss`,
    `actor_loss` or `temperature_loss`.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, CrossQConfig), policy.type
        layout, followed = crossq_layout(policy, action), None if policy.target_share is None else CRITICS
        super().__init__(config, policy, observation, action, seed, layout=layout, followed=followed)
        self._returns = return_distribution(policy, self._device)
        self._target_norms = None if followed is None else BatchNorms(self._target)
        self._norms = {name: BatchNorms(self._network.get_submodule(name)) for name in (CRITICS, ACTOR)}

    def portable(self) -> PortableTwinCritics:
        returns = return_distribution(self._policy, torch.device("cpu"))  # where the network is copied to
        return PortableCrossQ(self._network, self.observation, self.action, returns, self._rewards)

    def learn(self, batch: Arrays) -> LearnResult:
        """Take a step with the critics and, if due, with actor and temperature."""
        rows = self._rows(batch)
        noise, next_noise = self._normal(len(rows), 2 * self.action.outputs).chunk(2, dim=1)
        due = (self._updates + 1) % self._policy.policy_delay == 0
        critic = self.critic_loss(rows, next_noise)
        return self._update(rows, critic, self.actor_loss(rows, noise) if due else None)

    # --- the update rule

    def critic_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """Weighted distance from reward + discount * (return of the lower target critic - alpha * log probability), at
        an action that the policy draws for the next observation by normal numbers [n, k]."""
        with torch.no_grad():
            next_action, next_log_prob = SquashedGaussian(self._network(rows.next_obs)).drawn_by(noise)
        outputs, next_outputs = self._outputs(rows, next_action)
        with torch.no_grad():
            lower = self._returns.expectation(next_outputs).argmin(dim=0)
            next_output = next_outputs[lower, torch.arange(len(rows), device=lower.device)]
            reward = rows.reward - rows.discount * self.alpha * next_log_prob
            target = self._returns.target(next_output, reward, rows.discount)
        loss = (self._returns.losses(outputs, target) @ (rows.weights / len(rows))).sum()
        values, wanted = self._returns.expectation(outputs.detach()), self._returns.target_expectation(target)
        return self._critics_loss(loss, values, wanted)

    def _outputs(self, rows: Transitions, next_action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The critics' outputs, and the next outputs by the target critics, if any. With batch normalisation one pass
        reads both observations (figure 2)."""
        critics, has_target = self._network.critics, self._target_norms is not None
        if self._policy.normalization is not None:
            with torch.no_grad():
                after = outputs_of(self._target if has_target else critics, rows.next_obs, next_action)
            return outputs_of(critics, rows.obs, rows.action), after
        observations, actions = torch.cat((rows.obs, rows.next_obs)), torch.cat((rows.action, next_action))
        with self._norms[CRITICS].by_batch():
            outputs, next_outputs = outputs_of(critics, observations, actions).chunk(2, dim=1)
        if self._target_norms is not None:
            with torch.no_grad(), self._target_norms.by_batch():
                next_outputs = outputs_of(self._target, observations, actions).chunk(2, dim=1)[1]
        return outputs, next_outputs

    def actor_loss(self, rows: Transitions, noise: torch.Tensor) -> Loss:
        """See `soft_actor_loss`; the critics use their running moments."""
        with self._norms[ACTOR].by_batch():
            outputs = self._network(rows.obs)

        def values(action: torch.Tensor) -> torch.Tensor:
            return self._returns.expectation(outputs_of(self._network.critics, rows.obs, action))

        with self._parts[CRITICS].constant():
            return soft_actor_loss(values, outputs, noise, self.alpha)


class PortableCrossQ(PortableTwinCritics):
    """Values are the expected returns of the lowest critic."""

    def __init__(
        self,
        network: TwinCriticNetwork,
        observation: ObservationSpec,
        action: ActionSpec,
        returns: ReturnDistribution,
        rewards: RewardScale | None,
    ) -> None:
        super().__init__(network, observation, action, "squashed_gaussian", rewards=rewards)
        self._returns = returns

    def smaller_value(self, seen: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.network, TwinCriticNetwork)
        return self._returns.expectation(outputs_of(self.network.critics, seen, units)).amin(0)
