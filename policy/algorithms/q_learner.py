"""What DQN, Rainbow and R2D2 have in common: the end of an update, and hard copies into the target network."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import numpy as np
import torch

from remuda.config.algorithms.q_learning import QLearningConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.base import LearnResult, Loss
from remuda.policy.network_learner import Network, TargetLearner
from remuda.policy.networks.flat_parameters import FlatParameters
from remuda.policy.networks.optimizers.base import Optimizer
from remuda.policy.networks.optimizers.make import make_optimizer
from remuda.policy.spaces import ActionSpec, ObservationSpec


class QLearner(TargetLearner[Network, Optimizer]):
    """Learns action values on one vector of all parameters; the target network is a copy every so often."""

    def __init__(
        self,
        config: ExperimentConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        online: Network,
        target: Network,
        generator: torch.Generator | None = None,
    ) -> None:
        """Both networks are on `config.learner.device`."""
        assert isinstance(config.policy, QLearningConfig), config.policy.type
        self._learner, self._settings = config.learner, config.policy
        self._device = torch.device(config.learner.device)
        self._parameters, self._target_parameters = FlatParameters(online), FlatParameters(target)
        optimizer = make_optimizer(config, self._parameters.part(""))
        super().__init__(observation, action, online=online, target=target, optimizer=optimizer, generator=generator)

    def _descend(self, loss: Loss, rows: int) -> LearnResult:
        """Take a step down a loss, which is the mean of so many rows, and becomes that of all ranks."""
        self._parameters.backward(loss.total)
        with torch.no_grad():
            total = loss.total.detach()
            self.ranks.average(rows, self._parameters.gradient, total)
            grad_norm = self._step()
        metrics = {"cur_lr": self._learner.learning_rate, "total_loss": total, **loss.metrics, "grad_norm": grad_norm}
        return LearnResult(metrics, loss.priorities)

    def _step(self) -> torch.Tensor:
        """Take a step down the gradient; returns its norm before clipping."""
        grad_norm = self._parameters.clip_gradient(self._learner.max_grad_norm)
        self._optimizer.step()
        self._updates += 1
        if self._updates % self._settings.target_update_iters == 0:
            self._copy_to_target()
        return grad_norm

    def _copy_to_target(self) -> None:
        """See TargetLearner."""
        self._target_parameters.vector.data.copy_(self._parameters.vector.data)

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy the online network to the host, in one transfer."""
        return self._parameters.snapshot()
