"""Adam on one flat vector of parameters (Kingma & Ba 2015).

torch's own optimizers import its compiler on first use, 1.6 s that every learner would wait before its first update.
This calls the kernel they end in: the whole rule in one pass over the vector, in a third of the time that its six
operations take one by one.
"""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch

from remuda.policy.networks.lasting_memory import LastingMemory
from remuda.policy.saved_state import misfits


class Optimizer(Protocol):
    """What checkpoints keep of an optimizer, or of several."""

    def state(self) -> dict[str, object]:
        """See Adam."""
        ...

    def misfits(self, state: object) -> list[str]:
        """See Adam."""
        ...

    def load_state(self, state: Mapping[str, object]) -> None:
        """See Adam."""
        ...


class Adam:
    """Moves a parameter vector along its gradient vector; both are given once and changed in place by their owner."""

    learning_rate: float
    """May be changed between steps."""

    def __init__(
        self,
        vector: torch.Tensor,
        gradient: torch.Tensor,
        *,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        """`weight_decay`: this share of the vector is added to the gradient (an L2 penalty, as torch's Adam has it)."""
        self._vector = vector
        self._gradient = gradient
        self.learning_rate = learning_rate
        self._betas = betas
        self._epsilon = epsilon
        self._weight_decay = weight_decay
        self._steps = 0
        memory = LastingMemory()
        self._mean, self._square = (memory.empty(vector.shape, like=vector).zero_() for _ in range(2))
        self._step = vector.new_zeros(())  # the kernel wants it where the vector is

    def step(self) -> None:
        """Take one step."""
        self._steps += 1
        beta1, beta2 = self._betas
        torch._fused_adam_(  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
            [self._vector],
            [self._gradient],
            [self._mean],
            [self._square],
            [],
            [self._step.fill_(self._steps)],
            lr=self.learning_rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=self._weight_decay,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, object]:
        """Steps taken, and the running means of the gradient and its square. Tensors are live, not copies."""
        return {"step": self._steps, "exp_avg": self._mean, "exp_avg_sq": self._square}

    def misfits(self, state: object) -> list[str]:
        """The reasons why a saved state cannot be loaded; empty if it fits."""
        if not isinstance(state, Mapping):
            return ["optimizer: missing"]
        given = dict(cast("Mapping[str, object]", state))
        problems = [] if isinstance(given.pop("step", None), int) else ["optimizer: missing step"]
        length = tuple(self._vector.shape)
        return problems + misfits({"exp_avg": length, "exp_avg_sq": length}, given, what="optimizer")

    def load_state(self, state: Mapping[str, object]) -> None:
        """Continue from a state without misfits. The learning rate stays this optimizer's."""
        self._steps = cast("int", state["step"])
        self._mean.copy_(cast("torch.Tensor", state["exp_avg"]))
        self._square.copy_(cast("torch.Tensor", state["exp_avg_sq"]))


class Adams:
    """Several of them, by name."""

    def __init__(self, optimizers: Mapping[str, Adam]) -> None:
        self._optimizers = dict(optimizers)

    def __getitem__(self, name: str) -> Adam:
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
