"""What both forms of soft actor-critic share besides their update rules: the temperature, and how an update ends."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch

from remuda.config.algorithms.twin_critics import SacConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.sac.acting import sac_layout, target_entropy
from remuda.policy.algorithms.twin_critics.learning import ACTOR, CRITICS, TEMPERATURE, TwinCriticLearner
from remuda.policy.base import LearnResult
from remuda.policy.spaces import ActionSpec, ObservationSpec


class Found(NamedTuple):
    """What an update found of its n rows, before it changed anything."""

    values: torch.Tensor
    """[critics, n]: of the actions taken."""
    target: torch.Tensor
    """[n]: what they should be."""
    error: torch.Tensor
    """[critics, n]: by how much they are above it."""
    critic_loss: torch.Tensor
    policy_loss: torch.Tensor
    entropy: torch.Tensor
    """Of the policy in nats, the mean over the rows."""


class TemperedLearner(TwinCriticLearner):
    """Actor, critics and temperature. A subclass writes the gradients of the first two."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, SacConfig), policy.type
        super().__init__(
            config,
            observation,
            action,
            seed,
            layout=sac_layout(policy, observation, action),
            temperature=policy.initial_temperature if policy.temperature is None else None,
            followed="critics",
        )
        self._policy = policy
        self._target_critics = self._target_stack("")
        self._target_entropy = target_entropy(policy, action)

    def _alpha(self) -> float | torch.Tensor:
        """The temperature: fixed, or a tensor [1]."""
        fixed = self._policy.temperature
        return self._parts[TEMPERATURE].vector.exp() if fixed is None else fixed

    def _update(self, found: Found, alpha: float | torch.Tensor, target_entropy: float | torch.Tensor) -> LearnResult:
        """Take one step of Adam each with critics, actor and temperature, down the gradients that were written, and let
        the target critics follow.

        The temperature descends log(alpha) (entropy - target entropy), as the authors' implementation does: it falls
        while the policy is more random than it should be.
        """
        if TEMPERATURE in self._parts:
            self._parts[TEMPERATURE].gradient.copy_(found.entropy - target_entropy)
        n = len(found.target)
        self.ranks.average(n, self._parameters.gradient, found.critic_loss, found.policy_loss, found.entropy)
        critic_norm, actor_norm = self._step(CRITICS), self._step(ACTOR)
        if TEMPERATURE in self._parts:
            self._optimizer[TEMPERATURE].step()
        self._follow()
        self._updates += 1
        td_error = found.error.abs().mean(dim=0)
        metrics: dict[str, float | torch.Tensor] = {
            "cur_lr": self._learner.learning_rate,
            "critic_loss": found.critic_loss,
            "policy_loss": found.policy_loss,
            "temperature": alpha,
            "entropy": found.entropy,
            "q_value": found.values[0],
            "target_q_value": found.target,
            "td_error": td_error,
            "grad_norm": torch.hypot(critic_norm, actor_norm),
            "actor_grad_norm": actor_norm,
        }
        return LearnResult(metrics, td_error)
