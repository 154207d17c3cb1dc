"""The common learning side of SAC and TD3: networks, optimizers, targets and state, without update rules."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from remuda.config.algorithms.actor_critic import TwinCriticConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.twin_critics.entries import TwinCriticLayout, numbers_of
from remuda.policy.algorithms.twin_critics.networks import make_network
from remuda.policy.base import Arrays, LearnResult, Loss
from remuda.policy.network_learner import TargetLearner
from remuda.policy.networks.flat_parameters import FlatParameters, FlatPart
from remuda.policy.networks.optimizers import Optimizers, make_optimizer
from remuda.policy.networks.precision import Products
from remuda.policy.networks.tensors import to_tensor, weights_from
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.policy.transitions import Transitions

ACTOR, CRITICS, TEMPERATURE = "actor", "critics", "log_temperature"


class TwinCriticLearner(TargetLearner[nn.Module, Optimizers]):
    """Learns one vector of all parameters. Actor, critics and temperature are parts of it with an optimizer each; the
    part with target networks is followed by a second vector.

    All gradients of an update refer to the same parameters, so several ranks can average them at once.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        seed: int,
        *,
        layout: TwinCriticLayout,
        temperature: float | None,
        followed: str,
    ) -> None:
        """`temperature`: initial temperature, if learned. `followed`: name of the part with a target network, "" for
        all."""
        assert isinstance(config.policy, TwinCriticConfig), config.policy.type
        self._learner, self._shares, self._seed = config.learner, config.policy, seed
        self._as_vector = numbers_of(config.policy, observation) is not None
        self._device = torch.device(config.learner.device)
        with weights_from(seed):
            made = make_network(config.policy, layout, observation, action, config.source_dir, temperature)
        self._network = made.to(self._device)
        target = copy.deepcopy(self._network.get_submodule(followed))
        self._parameters, self._target_parameters = FlatParameters(self._network), FlatParameters(target)
        if config.policy.lowers_products:
            self.products = Products(self._device).reach(self._network).reach(target)
        self._followed = self._parameters.part(followed)
        self._following = self._target_parameters.part("")
        names = (CRITICS, ACTOR) if temperature is None else (CRITICS, ACTOR, TEMPERATURE)
        self._parts: dict[str, FlatPart] = {name: self._parameters.part(name) for name in names}
        optimizer = Optimizers(
            {name: make_optimizer(config, part, learning_rate=self._rate(name)) for name, part in self._parts.items()}
        )
        super().__init__(observation, action, online=self._network, target=target, optimizer=optimizer)

    def adjust(self, config: ExperimentConfig) -> None:
        super().adjust(config)
        for name in self._parts:
            self._optimizer[name].learning_rate = self._rate(name)

    def _rate(self, name: str) -> float:
        """The learning rate of a part."""
        own = self._shares.actor_learning_rate if name == ACTOR else None
        return self._learner.learning_rate if own is None else own

    # --- parts of an update

    def _rows(self, batch: Arrays) -> Transitions:
        """Move a batch to the device."""
        return Transitions.of(batch, self.observation, self.action, self._device, as_vector=self._as_vector)

    def _normal(self, rows: int, each: int) -> torch.Tensor:
        """Draw normal numbers float32 [rows, each] for this update: the same after a resume, and split by rows between
        several ranks."""
        counts = self.ranks.gather(np.array([rows], np.float64))[:, 0]
        before, whole = int(counts[: self.ranks.rank].sum()), int(counts.sum())
        drawn = np.random.default_rng((self._seed, self._updates)).standard_normal((whole, each), np.float32)
        return to_tensor(drawn[before : before + rows], self._device)

    def _descend(self, losses: Mapping[str, Loss], rows: int) -> LearnResult:
        """Take a step with each of these parts on its loss, a mean over `rows` rows, averaged over all ranks. The
        gradient is that of the sum of the losses, so each loss must mark its constants. Target networks follow after a
        step of the actor."""
        self._parameters.backward(*(loss.total for loss in losses.values()))
        metrics: dict[str, float | torch.Tensor] = {"cur_lr": self._learner.learning_rate}
        for loss in losses.values():
            metrics |= loss.metrics
        means = [value for value in metrics.values() if isinstance(value, torch.Tensor) and not value.dim()]
        with torch.no_grad():
            self.ranks.average(rows, self._parameters.gradient, *means)
            metrics["grad_norm"] = norm = self._clip(CRITICS)
            if ACTOR in losses:
                metrics["actor_grad_norm"] = actor_norm = self._clip(ACTOR)
                metrics["grad_norm"] = norm.hypot(actor_norm)
            for name in losses:
                self._optimizer[name].step()
            if ACTOR in losses:
                self._following.follow(self._followed.vector, self._shares.target_share)
        self._updates += 1
        return LearnResult(metrics, losses[CRITICS].priorities)

    def _clip(self, name: str) -> torch.Tensor:
        """Clip the gradient of a part; returns its norm before clipping."""
        return self._parts[name].clip_gradient(self._learner.max_grad_norm)

    # --- state

    def _copy_to_target(self) -> None:
        self._following.follow(self._followed.vector, 1.0)

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy the network to the host, in one transfer."""
        return self._parameters.snapshot()


def squared(values: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Squared distance of each value [critics, n] from the target [n]."""
    squares: torch.Tensor = torch.ops.aten.mse_loss(values, target, 0)  # one node of the graph
    return squares


def critics_loss(total: torch.Tensor, values: torch.Tensor, target: torch.Tensor) -> Loss:
    """Make the critics' Loss, with metrics, from values [critics, n] and their targets [n]."""
    found = values.detach()
    td_error = (found - target).abs().mean(dim=0)
    metrics = {"critic_loss": total.detach(), "q_value": found[0], "target_q_value": target, "td_error": td_error}
    return Loss(total, metrics, td_error)
