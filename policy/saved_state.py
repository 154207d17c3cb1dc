"""Checks of a saved state against the network that loads it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from remuda.config.errors import Error


class StateMismatchError(Error, ValueError):
    """A saved state does not fit the network; the message names every wrong key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("the saved state does not fit: " + "; ".join(problems))
        self.problems = problems


def require_fit(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, object], *, what: str) -> None:
    """Raise StateMismatchError unless `given` has exactly the expected keys and shapes; see misfits."""
    if problems := misfits(expected, given, what=what):
        raise StateMismatchError(problems)


def misfits(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, object], *, what: str) -> list[str]:
    """Name every missing, unexpected and misshapen key of `given`, arrays or tensors by name, and every non-array."""
    problems = [f"{what}: missing {key}" for key in expected if key not in given]
    problems += [f"{what}: unexpected {key}" for key in given if key not in expected]
    for key, shape in expected.items():
        if key in given:
            found = getattr(given[key], "shape", None)
            if found is None or tuple(found) != shape:
                shown = "no array" if found is None else f"shape {tuple(found)}"
                problems.append(f"{what}: {key} has {shown}, needed is {shape}")
    return problems


class NotFinite(ValueError):  # noqa: N818  (it says what happened)
    """Weights hold NaN or infinity; the message names the tensors."""


def require_finite(state: Mapping[str, np.ndarray]) -> None:
    """Raise NotFinite if a policy's state holds NaN or infinity."""
    bad = [name for name, array in state.items() if not np.isfinite(array).all()]
    if bad:
        raise NotFinite(f"weights are NaN or infinite: {', '.join(bad)}")
