"""What algorithms with a target network have in common: their state in checkpoints."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar, cast

import torch
from torch import nn

from remuda.policy.base import Algorithm
from remuda.policy.networks.optimizers.base import Kept
from remuda.policy.networks.tensors import model_misfits
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec

Network = TypeVar("Network", bound=nn.Module)
AnyOptimizer = TypeVar("AnyOptimizer", bound=Kept)


class TargetLearner(Algorithm, Generic[Network, AnyOptimizer]):
    """Learns `_online` with one optimizer, and bootstraps from `_target`, which comes after it."""

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
        """`generator` draws what updates draw; None if they draw nothing."""
        self.observation, self.action = observation, action
        self.network = self._online = online
        self._target, self._optimizer, self._generator = target, optimizer, generator
        self._updates = 0

    def _copy_to_target(self) -> None:
        """Give the target network the weights of the network in training, of which it is a copy."""
        self._target.load_state_dict(self._online.state_dict())

    def _loaded(self) -> None:
        """Bring what was computed of the networks up to them: they have other weights now."""

    def state(self) -> dict[str, object]:
        """See Algorithm; an optimizer's moments are vectors over its parameters, in the model's order."""
        drawn = {} if self._generator is None else {"generator": self._generator.get_state()}
        return {
            "model": dict(self._online.state_dict()),
            "target_model": dict(self._target.state_dict()),
            "optimizer": self._optimizer.state(),
            "schedules": {"updates": self._updates, **drawn},
        }

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Algorithm. Learning rates are the config's: there is no schedule that the state could continue."""
        problems = model_misfits(self._online, state, "model") + model_misfits(self._target, state, "target_model")
        problems += self._optimizer.misfits(state.get("optimizer"))
        schedules = cast("Mapping[str, object]", state.get("schedules") or {})
        updates, drawn = schedules.get("updates"), schedules.get("generator")
        if not isinstance(updates, int):
            problems.append("schedules: missing updates")
        if self._generator is not None and not _fits(drawn, self._generator):
            problems.append("schedules: missing generator")
        if problems:
            raise StateMismatchError(problems)
        self._online.load_state_dict(cast("dict[str, torch.Tensor]", state["model"]))
        self._target.load_state_dict(cast("dict[str, torch.Tensor]", state["target_model"]))
        self._optimizer.load_state(cast("Mapping[str, object]", state["optimizer"]))
        self._updates = cast("int", updates)
        if self._generator is not None:
            self._generator.set_state(cast("torch.Tensor", drawn).cpu())
        self._loaded()

    def load_weights(self, state: Mapping[str, object]) -> None:
        """Start all networks from a saved model."""
        super().load_weights(state)
        self._copy_to_target()
        self._loaded()


def _fits(drawn: object, generator: torch.Generator) -> bool:
    return isinstance(drawn, torch.Tensor) and drawn.shape == generator.get_state().shape
