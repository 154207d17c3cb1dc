"""IMPALA, the learning side (Espeholt et al. 2018): the update rule on one page."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.config.algorithms.actor_critic import ImpalaConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.actor_critic.learning import ActorCritic, Losses, Segments, explained_variance
from remuda.policy.base import Arrays, LearnResult
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.returns import divergence, vtrace
from remuda.policy.spaces import ActionSpec, ObservationSpec

ROUNDING = 1e-4
"""Log ratios below this may be rounding errors: the learning policy and the acting policy are then the same."""


def policy_loss(log_prob: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """The loss of the policy gradient, section 4.2 of the paper. Advantages hold the importance weights and are
    constant. All [n]."""
    return (log_prob * -advantages).mean()


def value_loss(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean squared error; targets are constant. All [n]."""
    mean: torch.Tensor = torch.ops.aten.mse_loss(values, targets)  # one node of the graph
    return mean


class Impala(ActorCritic):
    """One gradient step on each batch of segments; V-trace corrects for the age of the acting policy.

    Descends policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy.
    """

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        super().__init__(config, observation, action, seed)
        assert isinstance(config.policy, ImpalaConfig), config.policy.type
        self._policy = config.policy

    def learn(self, batch: Arrays) -> LearnResult:
        """Take one optimizer step on `loss`."""
        segments = self._prepare(batch)
        if not segments.whole:
            return self._result()
        losses = self.loss(segments)
        # Read before the backward pass, which nothing waits for then.
        log_ratio, values, targets = torch.stack((losses.log_ratio, losses.values, losses.targets)).cpu().numpy()
        means, moved = losses.means, self._moved(log_ratio)
        grad_norm = self._descend(losses.total, len(segments.steps), *means, moved)
        explained = explained_variance(self.ranks, values, targets)
        return self._result(
            means,
            approx_kl=moved[0],
            clip_fraction=moved[1],
            explained_variance=explained,
            value=losses.values * segments.reward_std,
            grad_norm=grad_norm,
        )

    def loss(self, segments: Segments) -> Losses:
        """The losses of section 4.2 of the paper, for a batch."""
        outputs, of_all = self._evaluate(segments.observations)
        distribution = self._distribution(outputs.index_select(0, segments.steps), segments.legal)
        log_prob, entropies = distribution.of(segments.actions)
        values = of_all.index_select(0, segments.steps)
        log_ratio = log_prob.detach() - segments.log_prob
        advantages, targets = self._traced(segments, of_all, log_ratio)
        of_policy, of_values = policy_loss(log_prob, advantages), value_loss(values, targets)
        entropy = self._mean_entropy(entropies)
        total = self._total(of_policy, of_values, entropy)
        return Losses(total, of_policy, of_values, entropy, log_ratio, values.detach(), targets)

    def _traced(
        self, segments: Segments, values: torch.Tensor, log_ratio: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages and value targets [n] by V-trace, given the values of all observations [B * (T + 1)]."""
        valid = segments.outcome.valid
        of_slots = np.zeros(valid.shape, np.float32)
        of_slots[valid] = log_ratio.cpu().numpy()
        trace = vtrace(
            segments.outcome,
            segments.per_slot(values),
            of_slots,
            discount=self._policy.discount,
            rho_clip=self._policy.rho_clip,
            c_clip=self._policy.c_clip,
        )
        advantages, targets = (to_tensor(column[valid], self._device) for column in trace)
        return advantages, targets

    def _moved(self, log_ratio: NDArray[np.float32]) -> torch.Tensor:
        """Divergence between acting and newest policy, and share of clipped weights, as means over the steps [n]: a
        tensor [2]."""
        if not len(log_ratio):
            return torch.zeros(2)
        clipped = (log_ratio > math.log(self._policy.rho_clip) + ROUNDING).mean()
        return torch.tensor([divergence(log_ratio), float(clipped)])
