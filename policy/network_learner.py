"""Base of algorithms with a single network: state in checkpoints, and shuffled minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remuda.policy.base import Algorithm
from remuda.policy.networks.optimizers import Kept
from remuda.policy.networks.tensors import model_misfits
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec

Network = TypeVar("Network", bound=nn.Module)
AnyOptimizer = TypeVar("AnyOptimizer", bound=Kept)


class NetworkLearner(Algorithm, Generic[Network, AnyOptimizer]):
    """An algorithm with a single network and optimizer."""

    def __init__(
        self,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        online: Network,
        optimizer: AnyOptimizer,
        generator: torch.Generator | None = None,
    ) -> None:
        """`generator`: random generator of updates; None if updates draw nothing or seed a new generator."""
        self.observation, self.action = observation, action
        self.network = self._online = online
        self._optimizer, self._generator = optimizer, generator
        self._updates = 0

    def _loaded(self) -> None:
        """Update values derived from the networks, after their weights were replaced."""

    def state(self) -> dict[str, object]:
        """See Algorithm. An optimizer's moments are vectors over the parameters, in the model's order."""
        drawn = {} if self._generator is None else {"generator": self._generator.get_state()}
        return {
            "model": dict(self._online.state_dict()),
            "optimizer": self._optimizer.state(),
            "schedules": {"updates": self._updates, **drawn},
        }

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Algorithm. Learning rates are the config's."""
        if problems := self._misfits(state):
            raise StateMismatchError(problems)
        schedules = cast("Mapping[str, object]", state["schedules"])
        self._online.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))
        self._optimizer.load_state(cast("Mapping[str, object]", state["optimizer"]))
        self._updates = cast("int", schedules["updates"])
        if self._generator is not None:
            self._generator.set_state(cast("torch.Tensor", schedules["generator"]).cpu())
        self._loaded()

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Start from a saved model."""
        super().load_weights(state)
        self._loaded()

    def _misfits(self, state: Mapping[str, object]) -> list[str]:
        """Reasons why a saved state cannot be loaded; empty if it fits."""
        problems = model_misfits(self._online, state, "model") + self._optimizer.misfits(state.get("optimizer"))
        schedules = cast("Mapping[str, object]", state.get("schedules") or {})
        if not isinstance(schedules.get("updates"), int):
            problems.append("schedules: missing updates")
        if self._generator is not None and not _fits(schedules.get("generator"), self._generator):
            problems.append("schedules: missing generator")
        return problems


class TargetLearner(NetworkLearner[Network, AnyOptimizer]):
    """An algorithm with a target network, for bootstraps."""

    def __init__(
        self,
        observation: ObservationSpec,
        action: ActionSpec,
        *,
        online: Network,
        target: Network,
        optimizer: AnyOptimizer,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(observation, action, online=online, optimizer=optimizer, generator=generator)
        self._target = target

    def _copy_to_target(self) -> None:
        """Copy the weights of the trained network to the target network."""
        self._target.load_state_dict(self._online.state_dict())

    def state(self) -> dict[str, object]:
        return {**super().state(), "target_model": dict(self._target.state_dict())}

    def load_state(self, state: Mapping[str, object]) -> None:
        if problems := self._misfits(state):
            raise StateMismatchError(problems)
        self._target.load_state_dict(cast("dict[str, torch.Tensor]", state["target_model"]))
        super().load_state(state)

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Start both networks from a saved model."""
        Algorithm.load_weights(self, state)
        self._copy_to_target()
        self._loaded()

    def _misfits(self, state: Mapping[str, object]) -> list[str]:
        return super()._misfits(state) + model_misfits(self._target, state, "target_model")


def _fits(drawn: object, generator: torch.Generator) -> bool:
    return isinstance(drawn, torch.Tensor) and drawn.shape == generator.get_state().shape


def shuffled(
    rng: np.random.Generator, *, whole: int, first: int, own: int, shares: int
) -> tuple[NDArray[np.int64], list[int]]:
    """Deal the rows of a batch to minibatches whose sizes differ by at most one.

    Args:
        rng: random generator, in the same state in all ranks.
        whole: rows in the whole batch.
        first: rows in the parts of lower ranks.
        own: rows in the part of this rank.
        shares: number of minibatches, at most `whole`.

    Returns:
        Row indices in this rank's part, ordered by minibatch, and this rank's number of rows in each minibatch.
    """
    order = rng.permutation(whole) - first
    here = (order >= 0) & (order < own)
    begins = [share * (whole // shares) + min(share, whole % shares) for share in range(shares)]
    return order[here], np.add.reduceat(here, begins, dtype=np.int64).tolist()
