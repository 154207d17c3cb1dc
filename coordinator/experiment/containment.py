"""Containment of errors: an error inside an experiment ends only this experiment."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from remuda.coordinator.effects import Broken, Step
from remuda.training.identity import Identity

P = ParamSpec("P")


class _Named(Protocol):
    identity: Identity


ExperimentT = TypeVar("ExperimentT", bound=_Named)


def contained(
    method: Callable[Concatenate[ExperimentT, P], list[Step]],
) -> Callable[Concatenate[ExperimentT, P], list[Step]]:
    """Let an error in a method of an experiment end only this experiment."""

    @wraps(method)
    def guarded(self: ExperimentT, /, *arguments: P.args, **named: P.kwargs) -> list[Step]:
        try:
            return method(self, *arguments, **named)
        except Exception as error:
            return [Broken.by(error, self.identity.id)]

    return guarded
