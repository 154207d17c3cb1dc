"""What every optimizer on a flat vector is, and what checkpoints keep of it."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol, cast

import torch

from remuda.policy.networks.lasting_memory import LastingMemory
from remuda.policy.saved_state import misfits

FIRST = "adam"
"""Whose a state is that has no name: there was no other optimizer when it was saved."""


class Kept(Protocol):
    """What checkpoints keep of an optimizer, or of several."""

    def state(self) -> dict[str, object]:
        """See Optimizer."""
        ...

    def misfits(self, state: object) -> list[str]:
        """See Optimizer."""
        ...

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Optimizer."""
        ...


class Optimizer(ABC):
    """Moves a parameter vector along its gradient vector; both are given once and changed in place by their owner."""

    learning_rate: float
    """May be changed between steps."""

    def __init__(self, name: str, vector: torch.Tensor, gradient: torch.Tensor, *, learning_rate: float) -> None:
        """`name` is that of `learner.optimizer`."""
        self._name, self._vector, self._gradient = name, vector, gradient
        self.learning_rate = learning_rate

    @abstractmethod
    def step(self) -> None:
        """Take one step."""

    @abstractmethod
    def load_state(self, state: Mapping[str, object]) -> None:
        """Continue from a state without misfits. The learning rate and all other settings stay this optimizer's."""

    def state(self) -> dict[str, object]:
        """Its name, and what it remembers. Tensors are live, not copies."""
        return {"name": self._name, **self._remembered()}

    def misfits(self, state: object) -> list[str]:
        """The reasons why a saved state cannot be loaded; empty if it fits."""
        if not isinstance(state, Mapping):
            return ["optimizer: missing"]
        given = dict(cast("Mapping[str, object]", state))
        name = given.pop("name", FIRST)
        if name != self._name:
            return [
                f"optimizer: the state is of {name}, and learner.optimizer is {self._name}: set that to {name}, or "
                "take the weights alone for a new run (learner.initialize_from)"
            ]
        return self._misfits(given)

    @abstractmethod
    def _remembered(self) -> dict[str, object]:
        """The state without the name."""

    @abstractmethod
    def _misfits(self, remembered: Mapping[str, object]) -> list[str]:
        """See misfits, of a state of the same optimizer."""


class VectorOptimizer(Optimizer):
    """Remembers the number of its steps, and vectors like that of the parameters."""

    def __init__(
        self, name: str, vector: torch.Tensor, gradient: torch.Tensor, *moments: str, learning_rate: float
    ) -> None:
        """`moments` name the vectors, which begin with zeros."""
        super().__init__(name, vector, gradient, learning_rate=learning_rate)
        self._steps = 0
        memory = LastingMemory()
        self._moments = {moment: memory.empty(vector.shape, like=vector).zero_() for moment in moments}

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Optimizer."""
        self._steps = cast("int", state["step"])
        for name, moment in self._moments.items():
            moment.copy_(cast("torch.Tensor", state[name]))

    def _remembered(self) -> dict[str, object]:
        return {"step": self._steps, **self._moments}

    def _misfits(self, remembered: Mapping[str, object]) -> list[str]:
        given = dict(remembered)
        problems = [] if isinstance(given.pop("step", None), int) else ["optimizer: missing step"]
        length = tuple(self._vector.shape)
        return problems + misfits(dict.fromkeys(self._moments, length), given, what="optimizer")


class Optimizers:
    """Several of them, by the name of what each moves."""

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._optimizers = dict(optimizers)

    def __getitem__(self, name: str) -> Optimizer:
        return self._optimizers[name]

    def state(self) -> dict[str, object]:
        """That of each, by name."""
        return {name: optimizer.state() for name, optimizer in self._optimizers.items()}

    def misfits(self, state: object) -> list[str]:
        """The reasons why a saved state cannot be loaded; empty if it fits."""
        given = dict(cast("Mapping[str, object]", state)) if isinstance(state, Mapping) else {}
        each = ((name, optimizer.misfits(given.get(name))) for name, optimizer in self._optimizers.items())
        return [f"{name}: {problem}" for name, problems in each for problem in problems]

    def load_state(self, state: Mapping[str, object]) -> None:
        """Continue from a state without misfits."""
        for name, optimizer in self._optimizers.items():
            optimizer.load_state(cast("Mapping[str, object]", state[name]))


def set_learning_rate(one: object, learning_rate: float) -> None:
    """Give a learning rate to an optimizer, of Remuda or of torch; leaves everything else alone."""
    if isinstance(one, Optimizer):
        one.learning_rate = learning_rate
    elif isinstance(one, torch.optim.Optimizer):
        for group in one.param_groups:
            group["lr"] = learning_rate
