"""An error in what the coordinator knows of one run ends that run, and no other."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from remuda.coordinator.effects import Broken, Step
from remuda.training.identity import Identity

P = ParamSpec("P")


class _Known(Protocol):
    @property
    def identity(self) -> Identity: ...


RunT = TypeVar("RunT", bound=_Known)


def bulkhead(method: Callable[Concatenate[RunT, P], list[Step]]) -> Callable[Concatenate[RunT, P], list[Step]]:
    """An error inside an experiment: it ends that experiment, no other, and not the coordinator."""

    @wraps(method)
    def contained(self: RunT, /, *arguments: P.args, **named: P.kwargs) -> list[Step]:
        try:
            return method(self, *arguments, **named)
        except Exception as error:
            return [Broken(self.identity.id, f"{type(error).__name__}: {error}", traceback.format_exc())]

    return contained
