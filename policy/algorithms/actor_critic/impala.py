"""IMPALA, the learning side (Espeholt et al. 2018): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import numpy as np
import torch

from remuda.config.algorithms import ImpalaConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.learning import ActorCritic, Slopes, explained_variance
from remuda.policy.algorithms.actor_critic.returns import divergence, vtrace
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.spaces import ActionSpec, ObservationSpec

ROUNDING = 1e-4
"""Log ratios so small may be nothing but rounding: the policy that learns and the one that acted are the same."""


class Impala(ActorCritic):
    """One gradient step on each batch of segments; V-trace corrects for the age of the policy that acted."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        super().__init__(config, observation, action, seed)
        assert isinstance(config.policy, ImpalaConfig), config.policy.type
        self._policy = config.policy

    @torch.no_grad()
    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of Adam on the policy gradient, the value error and the entropy (section 4.2 of the paper)."""
        self._anneal()
        segments = self._prepare(batch)
        valid = segments.outcome.valid
        if not valid.any():
            return self._result()

        outputs = self._outputs.forward_to_learn(segments.observations)
        distribution = self._distribution(outputs.policy.index_select(0, segments.steps))
        log_prob = distribution.log_prob(segments.actions)
        values = outputs.values.index_select(0, segments.steps)

        log_ratio = np.zeros(valid.shape, np.float32)
        log_ratio[valid] = (log_prob - segments.log_prob).cpu().numpy()
        trace = vtrace(
            segments.outcome,
            segments.per_slot(outputs.values),
            log_ratio,
            discount=self._policy.discount,
            rho_clip=self._policy.rho_clip,
            c_clip=self._policy.c_clip,
        )
        advantages, targets = (to_tensor(column[valid], self._device) for column in trace)

        n, errors = len(log_prob), values - targets
        policy_loss = -(advantages * log_prob).mean()
        value_loss = errors.square().mean()
        entropy = distribution.entropy().mean()
        loss = policy_loss + self._policy.value_coefficient * value_loss - self._policy.entropy_coefficient * entropy
        slopes = Slopes(
            log_prob=-advantages / n,  # the weights in them are constants
            values=2.0 * self._policy.value_coefficient / n * errors,
            entropy=-self._policy.entropy_coefficient / n,
        )
        grad_norm = self._descend(distribution, segments.actions, slopes, segments)

        moved = log_ratio[valid]
        return self._result(
            total_loss=loss,
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            approx_kl=divergence(moved),  # of the newest policy from the one that acted
            clip_fraction=float((moved > math.log(self._policy.rho_clip) + ROUNDING).mean()),
            explained_variance=explained_variance(values.cpu().numpy(), targets.cpu().numpy()),
            value=values / segments.reward_scale,
            grad_norm=grad_norm,
        )
