"""Optimizers by learner.optimizer: Remuda's on one flat vector of parameters, a user's on the parameters."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from pydantic import JsonValue
from torch import nn

from remuda.config.errors import NoExit
from remuda.config.learning import (
    BUILT_IN_OPTIMIZERS,
    OPTIMIZER,
    AdamSettings,
    AdamwSettings,
    RmspropSettings,
    own_optimizer,
)
from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError
from remuda.policy.networks.flat_parameters import FlatPart, HugePageMemory
from remuda.policy.saved_state import misfits

FIRST = "adam"
"""Name of the optimizer in states without a name: older Remuda had no other."""


class Optimizer(ABC):
    """Moves a parameter vector by a gradient vector, in place. The owner of both writes the
    gradient before every step. The state is a number of steps, and vectors like the parameters."""

    learning_rate: float
    """May be changed between steps."""

    def __init__(
        self, name: str, vector: torch.Tensor, gradient: torch.Tensor, *moments: str, learning_rate: float
    ) -> None:
        """`name`: value of `learner.optimizer`. `moments`: names of the state's vectors, initially zeros."""
        self._name, self._vector, self._gradient = name, vector, gradient
        self.learning_rate = learning_rate
        self._steps = 0
        memory = HugePageMemory()
        self._moments = {moment: memory.empty(vector.shape, like=vector).zero_() for moment in moments}

    @abstractmethod
    def step(self) -> None:
        """Move the vector by the present gradient."""

    def state(self) -> dict[str, object]:
        """Name and state. Tensors are live, not copies."""
        return {"name": self._name, **self._remembered()}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Continue from a state without misfits. Learning rate and other settings do not change."""
        self._steps = cast("int", state["step"])
        for name, moment in self._moments.items():
            moment.copy_(cast("torch.Tensor", state[name]))

    def misfits(self, state: object) -> list[str]:
        """Reasons why a saved state cannot be loaded; empty if it fits."""
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

    def _remembered(self) -> dict[str, object]:
        """The state without the name."""
        return {"step": self._steps, **self._moments}

    def _misfits(self, remembered: Mapping[str, object]) -> list[str]:
        """See misfits, of a state of the same optimizer."""
        given = dict(remembered)
        problems = [] if isinstance(given.pop("step", None), int) else ["optimizer: missing step"]
        length = tuple(self._vector.shape)
        return problems + misfits(dict.fromkeys(self._moments, length), given, what="optimizer")


class Optimizers:
    """Several optimizers, by the name of their part of the parameters."""

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._optimizers = dict(optimizers)

    def __getitem__(self, name: str) -> Optimizer:
        return self._optimizers[name]

    def state(self) -> dict[str, object]:
        return {name: optimizer.state() for name, optimizer in self._optimizers.items()}

    def misfits(self, state: object) -> list[str]:
        """Reasons why a saved state cannot be loaded; empty if it fits."""
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


_MEAN, _SQUARE = "exp_avg", "exp_avg_sq"


class Adam(Optimizer):
    """Adam, or AdamW if the settings are AdamW's."""

    def __init__(
        self, vector: torch.Tensor, gradient: torch.Tensor, settings: AdamSettings, *, learning_rate: float
    ) -> None:
        decoupled = isinstance(settings, AdamwSettings)
        name = "adamw" if decoupled else "adam"
        super().__init__(name, vector, gradient, _MEAN, _SQUARE, learning_rate=learning_rate)
        self._settings = settings
        self._kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        self._step = vector.new_zeros(())  # the kernel wants it where the vector is

    def step(self) -> None:
        self._steps += 1
        beta1, beta2 = self._settings.betas
        self._kernel(
            [self._vector],
            [self._gradient],
            [self._moments[_MEAN]],
            [self._moments[_SQUARE]],
            [],
            [self._step.fill_(self._steps)],
            lr=self.learning_rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=self._settings.weight_decay,
            eps=self._settings.eps,
            amsgrad=False,
            maximize=False,
        )


_MEAN_SQUARE, _MEAN_GRADIENT, _MOMENTUM = "square_avg", "grad_avg", "momentum_buffer"


class Rmsprop(Optimizer):
    """Divides the gradient by the root of its running mean square."""

    def __init__(
        self, vector: torch.Tensor, gradient: torch.Tensor, settings: RmspropSettings, *, learning_rate: float
    ) -> None:
        moments = [
            _MEAN_SQUARE,
            *([_MEAN_GRADIENT] if settings.centered else []),
            *([_MOMENTUM] if settings.momentum else []),
        ]
        super().__init__("rmsprop", vector, gradient, *moments, learning_rate=learning_rate)
        self._settings = settings
        memory = HugePageMemory()
        self._root, self._decayed = (memory.empty(vector.shape, like=vector) for _ in range(2))

    def step(self) -> None:
        self._steps += 1
        settings, gradient = self._settings, self._gradient
        if settings.weight_decay:
            gradient = torch.add(gradient, self._vector, alpha=settings.weight_decay, out=self._decayed)
        root = self._root_of(gradient)
        if not settings.momentum:
            self._vector.addcdiv_(gradient, root, value=-self.learning_rate)
            return
        momentum = self._moments[_MOMENTUM]
        momentum.mul_(settings.momentum).addcdiv_(gradient, root)
        self._vector.add_(momentum, alpha=-self.learning_rate)

    def _root_of(self, gradient: torch.Tensor) -> torch.Tensor:
        """Update the running means by a gradient; returns the root that divides the gradient, including epsilon."""
        settings, square = self._settings, self._moments[_MEAN_SQUARE]
        square.mul_(settings.alpha).addcmul_(gradient, gradient, value=1 - settings.alpha)
        variance = square
        if settings.centered:
            mean = self._moments[_MEAN_GRADIENT].lerp_(gradient, 1 - settings.alpha)
            variance = torch.addcmul(square, mean, mean, value=-1, out=self._root)
        if settings.eps_inside_root:
            return torch.add(variance, settings.eps, out=self._root).sqrt_()
        return torch.sqrt(variance, out=self._root).add_(settings.eps)


_STATE = "state_dict"
_ASKED = ("step", "state_dict", "load_state_dict", "param_groups")


class CustomOptimizer(Optimizer):
    """Runs the user's class on the network's parameters, by name."""

    def __init__(
        self,
        part: FlatPart,
        reference: str,
        settings: Mapping[str, JsonValue],
        *,
        learning_rate: float,
        source_dir: str | None,
    ) -> None:
        """Raises UserCodeError where the class cannot be made, or lacks something."""
        super().__init__(reference, part.vector, part.gradient, learning_rate=learning_rate)
        self._settings, self._source_dir = settings, source_dir
        self._named = part.named
        self._made, rate = self._make(self._named), self._first_rate
        self._shares = [group.get("lr", rate) / rate for group in self._made.param_groups]
        """Learning rate of each group as a share of the config's: the class may give layers different rates."""
        self._set_rates()

    def step(self) -> None:
        if self._group_rate != self.learning_rate:
            self._set_rates()
        # The class may put other tensors in place of the parameters' and of their gradients.
        views = self._views(self._named)
        self._made.step()
        for (_, parameter), view in zip(self._named, views, strict=True):
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter.detach())
                parameter.data = view

    def load_state(self, state: Mapping[str, object]) -> None:
        load_keeping_settings(self._made, cast("dict[str, object]", state[_STATE]))
        self._set_rates()

    @property
    def _first_rate(self) -> float:
        """Learning rate for the class: a schedule from 0 would give each group 0, and no share."""
        return self.learning_rate or 1.0

    def _set_rates(self) -> None:
        self._group_rate = self.learning_rate
        for group, share in zip(self._made.param_groups, self._shares, strict=True):
            group["lr"] = share * self.learning_rate

    def _remembered(self) -> dict[str, object]:
        return {_STATE: self._made.state_dict()}

    def _misfits(self, remembered: Mapping[str, object]) -> list[str]:
        if not isinstance(remembered.get(_STATE), dict):
            return [f"optimizer: missing {_STATE}"]
        try:
            with NoExit():
                copies = [(name, nn.Parameter(parameter.detach().clone())) for name, parameter in self._named]
                load_keeping_settings(self._make(copies), cast("dict[str, object]", remembered[_STATE]))
        except UserCodeError:
            raise
        except Exception as error:  # whatever the user's class raises
            return [f"optimizer: {self._name} refuses the state: {type(error).__name__}: {error}"]
        return []

    def _views(self, named: Sequence[tuple[str, nn.Parameter]]) -> list[torch.Tensor]:
        """Give the parameters their parts of the gradient; return their parts of the vector."""
        sizes = [parameter.numel() for _, parameter in named]
        gradients = torch.split(self._gradient, sizes)
        for (_, parameter), gradient in zip(named, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter)
        views = zip(named, torch.split(self._vector, sizes), strict=True)
        return [view.view_as(parameter) for (_, parameter), view in views]

    def _make(self, named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        self._views(named)
        make = own_optimizer(self._name, self._settings, source_dir=self._source_dir)
        where = f"{OPTIMIZER} = {self._name!r}"
        try:
            with NoExit():
                made = make(list(named), lr=self._first_rate, **self._settings)
        except Exception as error:  # whatever the user's class raises
            raise UserCodeError(OPTIMIZER, f"{where}: cannot be made: {type(error).__name__}: {error}") from error
        if lacking := [name for name in _ASKED if not hasattr(made, name)]:
            raise UserCodeError(OPTIMIZER, f"{where}: lacks {', '.join(lacking)}, which a torch.optim.Optimizer has")
        return cast("torch.optim.Optimizer", made)


def load_keeping_settings(made: torch.optim.Optimizer, state: dict[str, object]) -> None:
    """Load the state of an optimizer, except arguments of its constructor: the config decides learning rates."""
    given = [dict(group) for group in made.param_groups]
    made.load_state_dict(copy.deepcopy(state))
    try:
        arguments = inspect.signature(type(made)).parameters.keys() - {"params"}
    except ValueError:  # some classes written in C do not tell their parameters
        arguments = set[str]()
    for group, own in zip(made.param_groups, given, strict=True):
        group.update({name: own[name] for name in own.keys() & arguments})


def make_optimizer(config: ExperimentConfig, part: FlatPart, *, learning_rate: float | None = None) -> Optimizer:
    """Make the optimizer of these parameters, by `learner.optimizer` and its settings. `learning_rate` None: the
    learner's. Raises UserCodeError if a user's class cannot be made."""
    learner, vector, gradient = config.learner, part.vector, part.gradient
    rate = learner.learning_rate if learning_rate is None else learning_rate
    kind = BUILT_IN_OPTIMIZERS.get(learner.optimizer)
    if kind is None:
        named, given = learner.optimizer, learner.optimizer_settings
        return CustomOptimizer(part, named, given, learning_rate=rate, source_dir=config.source_dir)
    settings = kind.model_validate(learner.optimizer_settings)
    if isinstance(settings, RmspropSettings):
        return Rmsprop(vector, gradient, settings, learning_rate=rate)
    assert isinstance(settings, AdamSettings)
    return Adam(vector, gradient, settings, learning_rate=rate)
