"""What both forms of soft actor-critic share besides the losses of critics and actor: the temperature."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import torch

from remuda.config.algorithms.twin_critics import SacConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.sac.acting import sac_layout, target_entropy
from remuda.policy.algorithms.twin_critics.learning import ACTOR, CRITICS, TEMPERATURE, TwinCriticLearner
from remuda.policy.base import LearnResult, Loss
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.policy.transitions import Transitions


class TemperedLearner(TwinCriticLearner):
    """Actor, critics and temperature. A subclass states the losses of the first two; another one may override
    `temperature_loss` and `target_entropy`, too."""

    def __init__(self, config: ExperimentConfig, observation: ObservationSpec, action: ActionSpec, seed: int) -> None:
        policy = config.policy
        assert isinstance(policy, SacConfig), policy.type
        super().__init__(
            config,
            observation,
            action,
            seed,
            layout=sac_layout(policy, action),
            temperature=policy.initial_temperature if policy.temperature is None else None,
            followed="critics",
        )
        self._policy = policy

    @property
    def alpha(self) -> float | torch.Tensor:
        """The temperature, without a graph: fixed, or a tensor [1]."""
        fixed = self._policy.temperature
        return self._parts[TEMPERATURE].vector.exp() if fixed is None else fixed

    def _update(self, rows: Transitions, critic: Loss, actor: Loss) -> LearnResult:
        """Take one step each with critics, actor and temperature. The actor's metrics have the policy's
        `entropy` in nats, the mean over the rows."""
        losses = {CRITICS: critic, ACTOR: actor}
        if TEMPERATURE in self._parts:
            losses[TEMPERATURE] = Loss(self.temperature_loss(rows, actor.metrics["entropy"]), {})
        return self._descend(losses, len(rows))

    def temperature_loss(self, rows: Transitions, entropy: float | torch.Tensor) -> torch.Tensor:
        """log(alpha) (entropy - target entropy), which stands for alpha (…) (equation 18) in the authors'
        implementation: the temperature falls while the policy is more random than it should be."""
        assert self._network.log_temperature is not None, "a fixed temperature learns nothing"
        return (self._network.log_temperature * (entropy - self.target_entropy(rows))).sum()

    def target_entropy(self, rows: Transitions) -> float | torch.Tensor:
        """The entropy that a learned temperature aims at in these rows."""
        return target_entropy(self._policy, self.action)
