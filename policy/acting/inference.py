"""The forward pass used for acting: the fastest form for the given network, behind one call."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from remuda.policy.acting.plain_forward import plain_forward
from remuda.policy.acting.weights import Forward, Weights

_FAST_ENOUGH_S = 2e-4
"""Seconds per call. Below it, torch could never save the second and a half that importing it takes."""
_TRIAL_S, _TRIAL_CALLS = 0.02, 5
"""The least time for which each form is timed."""
_CLEARLY = 1.15
"""Torch must be this much faster than plain arrays: timings on a busy machine vary."""


class Inference:
    """Computes network outputs with the newest weights; all forms agree to 1e-5.

    Perceptrons always use plain arrays. For convolutions, plain arrays and torch are timed on the first observations,
    and the faster one is kept for all later weights; `chosen` is called with the choice. Without `chosen` nothing is
    timed and torch is used, for callers that must get the same numbers every time. On other devices than the CPU torch
    is always used.
    """

    def __init__(self, chosen: Callable[[str], None] | None = None, device: str = "cpu") -> None:
        """`device` is the torch device of the computation. Raises DeviceError if it does not exist."""
        self._chosen = chosen
        self._weights: Weights | None = None
        self._make = None if device == "cpu" else _torch_forward_on(device)
        self._forward: Forward | None = None

    def load(self, weights: Weights) -> None:
        """Use these weights from now on; they must not change afterwards."""
        self._weights = weights
        self._forward = None if self._make is None else self._make(weights)

    def __call__(self, observations: np.ndarray) -> NDArray[np.float32]:
        """Map encoded observations [n, …] to outputs float32 [n, outputs]. Raises RuntimeError before any weights."""
        if self._forward is None:
            self._forward = self._choose(observations)
        return self._forward(observations)

    def _choose(self, observations: np.ndarray) -> Forward:
        if self._weights is None:
            raise RuntimeError("the policy has no weights yet: call load_state first")
        if not (self._weights.filters or any(self._weights.parts_filters)):
            self._make = plain_forward
        elif self._chosen is None:
            self._make = _torch_forward
        else:
            self._make, explanation = fastest(self._weights, observations)
            self._chosen(explanation)
        return self._make(self._weights)


def fastest(weights: Weights, observations: np.ndarray) -> tuple[Callable[[Weights], Forward], str]:
    """Time both forms on these observations [n, …]; return the faster one, and the decision in words."""
    plain_s = _seconds_per_call(plain_forward(weights), observations)
    said = f"inference of {len(observations)} observations: plain arrays {plain_s * 1e3:.2f} ms"
    if plain_s < _FAST_ENOUGH_S:
        return plain_forward, f"{said}, which are fast enough"
    torch_s = _seconds_per_call(_torch_forward(weights), observations)
    said += f", torch {torch_s * 1e3:.2f} ms; "
    if torch_s * _CLEARLY < plain_s:
        return _torch_forward, said + "torch is taken"
    return plain_forward, said + "plain arrays are taken"


def _torch_forward(weights: Weights) -> Forward:
    from remuda.policy.acting.torch_forward import torch_forward  # not above: most collectors need no torch

    return torch_forward(weights)


def _torch_forward_on(device: str) -> Callable[[Weights], Forward]:
    from remuda.policy.acting.torch_forward import torch_forward
    from remuda.policy.networks.tensors import usable

    return functools.partial(torch_forward, device=usable(device, setting="collector.device"))


def _seconds_per_call(forward: Forward, observations: np.ndarray) -> float:
    """The time of the fastest of several calls: other work on the machine can only add time."""
    forward(observations)  # the first call allocates
    times_s: list[float] = []
    while len(times_s) < _TRIAL_CALLS or sum(times_s) < _TRIAL_S:
        started_s = time.perf_counter()
        forward(observations)
        times_s.append(time.perf_counter() - started_s)
    return min(times_s)
