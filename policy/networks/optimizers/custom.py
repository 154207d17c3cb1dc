"""Optimizers that users bring: `learner.optimizer` as `module:Class`."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Protocol, cast

import torch
from pydantic import JsonValue
from torch import nn

from remuda.config.errors import NoExit
from remuda.config.optimizers import OPTIMIZER, own_optimizer
from remuda.config.user_code import UserCodeError
from remuda.policy.networks.optimizers.base import Optimizer

_STATE = "state_dict"
_ASKED = ("step", "state_dict", "load_state_dict", "param_groups")


class Steps(Protocol):
    """The part of torch.optim.Optimizer that is asked for."""

    param_groups: list[dict[str, object]]

    def step(self) -> object:
        """Move the parameters along their gradients."""
        ...

    def state_dict(self) -> dict[str, object]:
        """What goes into checkpoints: numbers, text and tensors."""
        ...

    def load_state_dict(self, state: dict[str, object], /) -> object:
        """Continue from such a state."""
        ...


class CustomOptimizer(Optimizer):
    """Gives the user's class one parameter: the whole vector."""

    def __init__(
        self,
        vector: torch.Tensor,
        gradient: torch.Tensor,
        reference: str,
        settings: Mapping[str, JsonValue],
        *,
        learning_rate: float,
        source_dir: str | None,
    ) -> None:
        """Raises UserCodeError where the class cannot be made, or lacks something."""
        super().__init__(reference, vector, gradient, learning_rate=learning_rate)
        self._settings, self._source_dir = settings, source_dir
        self._parameter = nn.Parameter(vector)
        self._made = self._make(self._parameter)
        self._told = learning_rate

    def step(self) -> None:
        """See Optimizer."""
        if self._told != self.learning_rate:
            self._told = self.learning_rate
            for group in self._made.param_groups:
                group["lr"] = self.learning_rate
        parameter, vector = self._parameter, self._vector
        parameter.grad = self._gradient  # the class may have put another in its place, and so with the parameter
        self._made.step()
        if parameter.data_ptr() != vector.data_ptr():
            vector.copy_(parameter.detach())
            parameter.data = vector

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Optimizer."""
        _load(self._made, state)
        self._told = self.learning_rate
        for group in self._made.param_groups:
            group["lr"] = self.learning_rate

    def _remembered(self) -> dict[str, object]:
        return {_STATE: self._made.state_dict()}

    def _misfits(self, remembered: Mapping[str, object]) -> list[str]:
        if not isinstance(remembered.get(_STATE), dict):
            return [f"optimizer: missing {_STATE}"]
        try:
            with NoExit():
                _load(self._make(nn.Parameter(self._vector.clone())), remembered)
        except UserCodeError:
            raise
        except Exception as error:  # whatever the user's class raises
            return [f"optimizer: {self._name} refuses the state: {type(error).__name__}: {error}"]
        return []

    def _make(self, parameter: nn.Parameter) -> Steps:
        parameter.grad = self._gradient
        make = own_optimizer(self._name, self._settings, source_dir=self._source_dir)
        where = f"{OPTIMIZER} = {self._name!r}"
        try:
            with NoExit():
                made = make([parameter], lr=self.learning_rate, **self._settings)
        except Exception as error:  # whatever the user's class raises
            raise UserCodeError(OPTIMIZER, f"{where}: cannot be made: {type(error).__name__}: {error}") from error
        if lacking := [name for name in _ASKED if not hasattr(made, name)]:
            raise UserCodeError(OPTIMIZER, f"{where}: lacks {', '.join(lacking)}, which a torch.optim.Optimizer has")
        return cast("Steps", made)


def _load(made: Steps, state: Mapping[str, object]) -> None:
    """Load what the class remembers. What its constructor takes stays as it was given."""
    given = [dict(group) for group in made.param_groups]
    made.load_state_dict(copy.deepcopy(cast("dict[str, object]", state[_STATE])))
    try:
        arguments = inspect.signature(type(made)).parameters.keys() - {"params"}
    except ValueError:  # some classes written in C do not tell their parameters
        arguments = set[str]()
    for group, own in zip(made.param_groups, given, strict=True):
        group.update({name: own[name] for name in own.keys() & arguments})
