"""The learning side of SAC and TD3, without their update rules: networks, optimizers, targets and state."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from remuda.config.algorithms.twin_critics import TwinCriticConfig
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms.target_learner import TargetLearner
from remuda.policy.algorithms.twin_critics.layout import TwinCriticLayout
from remuda.policy.algorithms.twin_critics.networks import TwinCriticNetwork
from remuda.policy.base import Arrays
from remuda.policy.networks.adam import Adam, Adams
from remuda.policy.networks.flat_parameters import FlatParameters, FlatPart
from remuda.policy.networks.parts import flat
from remuda.policy.networks.precision import Products
from remuda.policy.networks.stacked import Stack
from remuda.policy.networks.tensors import to_tensor, weights_from
from remuda.policy.spaces import ActionSpec, ObservationSpec

ACTOR, CRITICS, TEMPERATURE = "actor", "critics", "log_temperature"


@dataclass(frozen=True)
class Rows:
    """A batch of n transitions on the learner's device."""

    obs: torch.Tensor
    """float32 [n, features], encoded; the same for `next_obs`."""
    next_obs: torch.Tensor
    action: torch.Tensor
    """Numbers in -1 … 1, float32 [n, k]; or indices, int64 [n, 1]."""
    reward: torch.Tensor
    """float32 [n]; the same for `discount` and `weights`."""
    discount: torch.Tensor
    weights: torch.Tensor

    def __len__(self) -> int:
        return len(self.reward)


class TwinCriticLearner(TargetLearner[nn.Module, Adams]):
    """One vector of all parameters, of which actor, critics and temperature are parts with an Adam each; the part of it
    that has target networks is followed by a vector of its own.

    All gradients of an update are those at the same parameters, so that several ranks can average them at once.
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
        """`temperature` is the first one, if it is learned; `followed`: the name of what has a target network, "" for
        all."""
        assert isinstance(config.policy, TwinCriticConfig), config.policy.type
        self._learner, self._shares, self._seed = config.learner, config.policy, seed
        self._device = torch.device(config.learner.device)
        self._box = action.bounded(by=config.policy.type) if action.n is None else None
        with weights_from(seed):
            self._network = TwinCriticNetwork(layout, temperature).to(self._device)
        target = copy.deepcopy(self._network.get_submodule(followed))
        self._parameters, self._target_parameters = FlatParameters(self._network), FlatParameters(target)
        self.products = self._products = Products(self._device)
        self._actor, self._critics = (
            Stack(self._parameters, prefix, self._products) for prefix in ("actor.", "critics.")
        )
        self._followed = self._parameters.part(followed)
        self._following = self._target_parameters.part("")
        rates = {CRITICS: config.learner.learning_rate, ACTOR: self._shares.actor_learning_rate}
        if temperature is not None:
            rates[TEMPERATURE] = config.learner.learning_rate
        self._parts: dict[str, FlatPart] = {name: self._parameters.part(name) for name in rates}
        optimizer = Adams(
            {
                name: Adam(part.vector, part.gradient, learning_rate=rates[name] or config.learner.learning_rate)
                for name, part in self._parts.items()
            }
        )
        super().__init__(observation, action, online=self._network, target=target, optimizer=optimizer)

    # --- parts of an update

    def _target_stack(self, prefix: str) -> Stack:
        """A part of the target networks."""
        return Stack(self._target_parameters, prefix, self._products)

    def _rows(self, batch: Arrays) -> Rows:
        """Move a batch to the device."""

        def given(column: np.ndarray) -> torch.Tensor:
            return to_tensor(column, self._device)

        obs, next_obs = (given(flat(self.observation, batch[name])) for name in ("obs", "next_obs"))
        if self._box is not None:
            action = given(self._box.from_environment(batch["action"]))
        else:
            action = given(batch["action"].astype(np.int64, copy=False) - self.action.start).unsqueeze(1)
        return Rows(obs, next_obs, action, given(batch["reward"]), given(batch["discount"]), given(batch["weights"]))

    def _normal(self, rows: int, each: int) -> torch.Tensor:
        """Draw normal numbers float32 [rows, each] of this update: a resumed run draws the same, and several ranks draw
        what one would have drawn, of which each takes its rows."""
        counts = self.ranks.gather(np.array([rows], np.float64))[:, 0]
        before, whole = int(counts[: self.ranks.rank].sum()), int(counts.sum())
        drawn = np.random.default_rng((self._seed, self._updates)).standard_normal((whole, each), np.float32)
        return to_tensor(drawn[before : before + rows], self._device)

    def _step(self, name: str) -> torch.Tensor:
        """Take a step with one of the optimizers; returns the norm of its gradient before clipping."""
        norm = self._parts[name].clip_gradient(self._learner.max_grad_norm)
        self._optimizer[name].step()
        return norm

    def _follow(self) -> None:
        """Let the target networks follow."""
        self._following.follow(self._followed.vector, self._shares.target_share)

    # --- state

    def _copy_to_target(self) -> None:
        """See TargetLearner."""
        self._following.follow(self._followed.vector, 1.0)

    def acting_state(self) -> dict[str, np.ndarray]:
        """Copy the network to the host, in one transfer."""
        return self._parameters.snapshot()
