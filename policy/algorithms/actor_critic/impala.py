"""IMPALA, the learning side (Espeholt et al. 2018): the update rule on one page."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.actor_critic import ImpalaConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.learning import ActorCritic, explained_variance
from remuda.policy.algorithms.actor_critic.outputs import Outputs
from remuda.policy.algorithms.actor_critic.returns import divergence, vtrace
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.spaces import ActionSpec, ObservationSpec

ROUNDING = 1e-4
"""Log ratios below this may be rounding errors: the learning policy and the acting policy are then the same."""


def policy_loss(log_prob: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """The loss of the policy gradient, section 4.2 of the paper. Advantages hold the importance weights and are
    constant. All [n]."""
    return -(advantages * log_prob).mean()


def policy_slope(advantages: torch.Tensor) -> torch.Tensor:
    """The gradient of `policy_loss` by `log_prob`."""
    return advantages / -max(1, len(advantages))


def value_loss(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean squared error; targets are constant. All [n]."""
    return (values - targets).square().mean()


def value_slope(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient of `value_loss` by `values`."""
    return 2.0 / max(1, len(values)) * (values - targets)


class Impala(ActorCritic):
    """One gradient step on each batch of segments; V-trace corrects for the age of the policy that acted.

    It descends policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        super().__init__(config, observation, action, seed)
        assert isinstance(config.policy, ImpalaConfig), config.policy.type
        self._policy = config.policy

    @torch.no_grad()
    def learn(self, batch: Arrays) -> LearnResult:
        """Take one step of Adam down the losses of section 4.2 of the paper."""
        self._anneal()
        segments = self._prepare(batch)
        valid = segments.outcome.valid
        if not segments.whole:
            return self._result()

        outputs, backward = self._outputs.vjp(segments.observations)
        distribution = self._distribution(outputs.policy.index_select(0, segments.steps), segments.legal)
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

        losses = self._losses(
            policy_loss(log_prob, advantages), value_loss(values, targets), distribution.entropy().mean()
        )
        slopes = self._slopes(policy_slope(advantages), value_slope(values, targets))
        moved = self._moved(log_ratio[valid])
        grad_norm = self._descend(
            distribution,
            segments.actions,
            slopes,
            lambda of_steps: backward(Outputs(*map(segments.per_observation, of_steps))),
            *losses,
            moved,
        )
        return self._result(
            losses,
            approx_kl=moved[0],
            clip_fraction=moved[1],
            explained_variance=explained_variance(self.ranks, values.cpu().numpy(), targets.cpu().numpy()),
            value=values / segments.reward_scale,
            grad_norm=grad_norm,
        )

    def _moved(self, log_ratio: NDArray[np.float32]) -> torch.Tensor:
        """The divergence of the newest policy from the one that acted, and the share of clipped weights, both means
        over the steps [n]: a tensor [2]."""
        if not len(log_ratio):
            return torch.zeros(2)
        clipped = (log_ratio > math.log(self._policy.rho_clip) + ROUNDING).mean()
        return torch.tensor([divergence(log_ratio), float(clipped)])
