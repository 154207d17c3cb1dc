"""A network as it acts: by numpy from its published programs, or by its own modules in torch."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from remuda.policy.base import Arrays, imported
from remuda.policy.networks.compiled import Forward, compiled
from remuda.policy.networks.program import PROGRAM, Programs, Steps, decoded, has_convolutions
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ObservationSpec

if TYPE_CHECKING:
    from torch import nn

    from remuda.policy.acting.torch_outputs import TorchOutputs

Chosen = Callable[[str], None] | None
"""Called with the form that was chosen by timing; None: none is timed."""

_NO_INPUTS: Mapping[str, int | None] = MappingProxyType({})
_FAST_ENOUGH_S = 2e-4
"""Seconds per call. Below it, torch could never save the second and a half that importing it takes."""
_TRIAL_S, _TRIAL_CALLS = 0.02, 5
"""The least time for which each form is timed."""
_CLEARLY = 1.15
"""Each form must be this much faster than those before it: timings on a busy machine vary."""


@dataclass(frozen=True)
class Choice:
    """Lets an output choose its form by timing. Is called with the choice."""

    log: Callable[[str], None]
    lower: bool
    """Whether products may be bfloat16."""

    def __call__(self, text: str) -> None:
        """Say the choice."""
        self.log(text)


class ActingNetwork:
    """Computes the outputs of a network by name with the newest weights; all forms in float32 agree to 1e-5.

    Perceptrons are computed by numpy. For convolutions, numpy and torch are timed on the first observations, and the
    faster is kept for all later weights. If a Choice allows it, torch in bfloat16 is timed as well, on processors that
    have instructions for it: its outputs are within 1 % of the largest. Without `chosen` nothing is timed and torch is
    used, for callers that must get the same numbers every time. Modules that numpy cannot compute, and other devices
    than the CPU, need torch always.
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        observation: ObservationSpec,
        *,
        timed: str,
        inputs: Mapping[str, int | None] = _NO_INPUTS,
        chosen: Chosen = None,
        device: str = "cpu",
    ) -> None:
        """Raises DeviceError if there is no such device.

        Args:
            make: builds the network; its weights do not count. Called where torch is needed.
            observation: what the network reads.
            timed: the output that chooses its form by timing.
            inputs: how many numbers an output reads, where these are not the observation's; None: not known.
            chosen: see Chosen.
            device: the torch device of the computation.
        """
        self._make, self._observation, self._timed, self._inputs = make, observation, timed, inputs
        self._chosen, self._device = chosen, device
        self.arrays: Arrays = {}
        """The newest weights, by name."""
        self._program = b""
        self._programs: Programs = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._forms: dict[str, _Form] = {}
        self._forwards: dict[str, Forward] = {}
        if device != "cpu":
            _ = self._torch

    def load_state(self, state: Arrays) -> None:
        """Use these weights from now on; they must not change afterwards. Raises StateMismatchError, and the old ones
        stay."""
        arrays = {name: array for name, array in state.items() if name != PROGRAM}
        self._read(state.get(PROGRAM), arrays)
        if "_torch" in vars(self):
            self._torch.load(arrays)
        self.arrays = arrays
        self._forwards = {}

    def __call__(self, output: str, inputs: np.ndarray) -> NDArray[np.float32]:
        """Map encoded inputs [n, …] to an output, float32 [n, outputs]. Raises RuntimeError before any weights."""
        forward = self._forwards.get(output)
        if forward is None:
            forward = self._forwards[output] = self._forward(output, inputs)
        return forward(inputs)

    # --- which form

    def _forward(self, output: str, inputs: np.ndarray) -> Forward:
        if not self.arrays:
            raise RuntimeError("the policy has no weights yet: call load_state first")
        form = self._forms.get(output)
        if form is None:
            form = self._forms[output] = self._choose(output, inputs)
        return form()

    def _choose(self, output: str, inputs: np.ndarray) -> _Form:
        steps = self._programs[output]
        by_torch = functools.partial(self._by_torch, output)
        if steps is None or self._device != "cpu":
            return by_torch
        plain = functools.partial(self._by_numpy, output)
        if not has_convolutions(steps):
            return plain
        if self._chosen is None or output != self._timed:
            return by_torch
        lower = isinstance(self._chosen, Choice) and self._chosen.lower
        form, explanation = fastest(plain, by_torch, inputs, lower=lower)
        self._chosen(explanation)
        return form

    def _by_numpy(self, output: str) -> Forward:
        steps = self._programs[output]
        assert steps is not None
        return compiled(steps, self.arrays, self._observation)

    def _by_torch(self, output: str, *, lower: bool = False) -> Forward:
        if not self._torch.loaded:
            self._torch.load(self.arrays)
        return self._torch.forward(output, lower=lower)

    @functools.cached_property
    def _torch(self) -> TorchOutputs:
        from remuda.policy.acting.torch_outputs import TorchOutputs  # not above: most collectors need no torch

        return TorchOutputs(self._make, self._device)

    # --- what was published

    def _read(self, program: np.ndarray | None, arrays: Arrays) -> None:
        """Take over programs and shapes, if they are others than before. Raises StateMismatchError."""
        shapes = {name: array.shape for name, array in arrays.items()}
        content = b"" if program is None else program.tobytes()
        if shapes == self._shapes and content == self._program:
            return
        programs = self._torch.programs if program is None else decoded(program)  # a checkpoint has none
        if program is None or None in programs.values() or "_torch" in vars(self):
            self._torch.require_fit(shapes)
        for output, steps in programs.items():
            if steps is not None:
                self._try(output, steps, arrays)
        self._program, self._programs, self._shapes = content, programs, shapes

    def _try(self, output: str, steps: Steps, arrays: Arrays) -> None:
        spec, numbers = self._observation, self._inputs.get(output)
        if numbers is None and output in self._inputs:
            return
        example = spec.encode(spec.example(1)) if numbers is None else np.zeros((1, numbers), np.float32)
        try:
            compiled(steps, arrays, spec)(example)
        except (KeyError, ValueError, IndexError) as error:
            raise StateMismatchError([f"policy: its {output} cannot be computed with these arrays: {error}"]) from error


@dataclass(frozen=True)
class Inference:
    """How the networks of a policy are made and computed."""

    source_dir: str | None = None
    """Where modules of users are looked for."""
    chosen: Chosen = None
    """As the device: see ActingNetwork."""
    device: str = "cpu"

    def network(
        self,
        make: Callable[[], nn.Module],
        observation: ObservationSpec,
        *,
        timed: str,
        inputs: Mapping[str, int | None] = _NO_INPUTS,
    ) -> ActingNetwork:
        """Computed like this; the arguments are those of ActingNetwork."""
        return ActingNetwork(make, observation, timed=timed, inputs=inputs, chosen=self.chosen, device=self.device)


PLAIN = Inference()


def made_by(reference: str, *arguments: object) -> Callable[[], nn.Module]:
    """Returns a function that imports `module:function` and calls it with these arguments, when it is called: the
    module needs torch, which most collectors do not."""

    def make() -> nn.Module:
        return cast("nn.Module", imported(reference)(*arguments))

    return make


_Form = Callable[[], Forward]


def fastest(plain: _Form, by_torch: Callable[..., Forward], inputs: np.ndarray, *, lower: bool) -> tuple[_Form, str]:
    """Time all forms on inputs [n, …]; return the fastest, and the decision in words. With `lower` that in bfloat16
    too, if the processor has instructions for it."""
    plain_s = _seconds_per_call(plain(), inputs)
    report = f"inference of {len(inputs)} observations: plain arrays {plain_s * 1e3:.2f} ms"
    if plain_s < _FAST_ENOUGH_S:
        return plain, f"{report}, which are fast enough"
    forms: dict[str, _Form] = {"torch": by_torch}
    if lower and _has_bfloat16():
        forms["torch in bfloat16"] = functools.partial(by_torch, lower=True)
    best, best_s = "plain arrays", plain_s
    for name, form in forms.items():
        seconds = _seconds_per_call(form(), inputs)
        report += f", {name} {seconds * 1e3:.2f} ms"
        if seconds * _CLEARLY < best_s:
            best, best_s = name, seconds
    return forms.get(best, plain), f"{report}; {best} {'are' if best == 'plain arrays' else 'is'} taken"


def _has_bfloat16() -> bool:
    import torch

    from remuda.policy.networks.precision import Hardware, hardware

    return hardware(torch.device("cpu")) is not Hardware.NOTHING


def _seconds_per_call(forward: Forward, inputs: np.ndarray) -> float:
    """The time of the fastest of several calls: other work on the machine can only add time."""
    forward(inputs)  # the first call allocates
    times_s: list[float] = []
    while len(times_s) < _TRIAL_CALLS or sum(times_s) < _TRIAL_S:
        started_s = time.perf_counter()
        forward(inputs)
        times_s.append(time.perf_counter() - started_s)
    return min(times_s)
