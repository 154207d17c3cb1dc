"""The forward pass used for acting: the fastest form for the given network, behind one call."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remuda.policy.acting.plain_forward import plain_forward
from remuda.policy.acting.weights import Forward, Weights

_FAST_ENOUGH_S = 2e-4
"""Seconds per call. Below it, torch could never save the second and a half that importing it takes."""
_TRIAL_S, _TRIAL_CALLS = 0.02, 5
"""The least time for which each form is timed."""
_CLEARLY = 1.15
"""Each form must be this much faster than those before it: timings on a busy machine vary."""


@dataclass(frozen=True)
class Choice:
    """Lets an inference choose its form by timing. Is called with what was chosen."""

    say: Callable[[str], None]
    lower: bool
    """Whether products may be bfloat16."""

    def __call__(self, text: str) -> None:
        """Say what was chosen."""
        self.say(text)


class Inference:
    """Computes network outputs with the newest weights; all forms in float32 agree to 1e-5.

    Perceptrons always use plain arrays. For convolutions, plain arrays and torch are timed on the first observations,
    and the fastest is kept for all later weights; `chosen` is called with the choice. If it is a Choice that allows it,
    torch with products in bfloat16 is timed as well, on processors that have instructions for it: its outputs are
    within 1 % of the largest. Without `chosen` nothing is timed and torch is used, for callers that must get the same
    numbers every time. On other devices than the CPU torch is always used.
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
            lower = isinstance(self._chosen, Choice) and self._chosen.lower
            self._make, explanation = fastest(self._weights, observations, lower=lower)
            self._chosen(explanation)
        return self._make(self._weights)


def fastest(
    weights: Weights, observations: np.ndarray, *, lower: bool = False
) -> tuple[Callable[[Weights], Forward], str]:
    """Time all forms on these observations [n, …]; return the fastest, and the decision in words.

    With `lower` that in bfloat16 too, if the processor has instructions for it, for images followed by layers."""
    plain_s = _seconds_per_call(plain_forward(weights), observations)
    said = f"inference of {len(observations)} observations: plain arrays {plain_s * 1e3:.2f} ms"
    if plain_s < _FAST_ENOUGH_S:
        return plain_forward, f"{said}, which are fast enough"
    forms: dict[str, Callable[[Weights], Forward]] = {"torch": _torch_forward}
    if lower and weights.filters and weights.dense and _has_bfloat16():
        forms["torch in bfloat16"] = _lower_forward
    best, best_s = "plain arrays", plain_s
    for name, make in forms.items():
        seconds = _seconds_per_call(make(weights), observations)
        said += f", {name} {seconds * 1e3:.2f} ms"
        if seconds * _CLEARLY < best_s:
            best, best_s = name, seconds
    return forms.get(best, plain_forward), f"{said}; {best} {'are' if best == 'plain arrays' else 'is'} taken"


def _has_bfloat16() -> bool:
    from remuda.policy.acting.torch_forward import CPU
    from remuda.policy.networks.precision import Hardware, hardware

    return hardware(CPU) is not Hardware.NOTHING


def _torch_forward(weights: Weights) -> Forward:
    from remuda.policy.acting.torch_forward import torch_forward  # not above: most collectors need no torch

    return torch_forward(weights)


def _lower_forward(weights: Weights) -> Forward:
    from remuda.policy.acting.torch_forward import lower_forward

    return lower_forward(weights)


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
