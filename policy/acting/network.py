"""A network for acting: by numpy from its published programs, by its own modules in torch, or in another process."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from remuda.config.algorithms.base import AlgorithmConfig
from remuda.policy.base import Arrays, imported
from remuda.policy.networks.compiled import Forward, compiled
from remuda.policy.networks.program import PROGRAM, Programs, Steps, decoded, has_convolutions
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec

if TYPE_CHECKING:
    from torch import nn

    from remuda.policy.acting.torch_outputs import TorchOutputs

Form = Literal["plain arrays", "torch", "torch in bfloat16"]
"""An implementation of an output; plain arrays are numpy's."""
Chosen = Callable[[str], None] | None
"""Called with a description of the implementation chosen by timing; None: nothing is timed."""

Function = Callable[[str, Arrays], Arrays]
"""Computes an output, by its name, for arrays [n, …] by name. Each row of the result depends on the same row of the
arrays, and on the weights, alone: so rows of several callers can be computed together."""


class Shared(Protocol):
    """Shared inference: lets one process compute the functions of a policy for others, see remuda.collector.asking and
    remuda.collector.inference."""

    @property
    def elsewhere(self) -> bool:
        """True if another process computes the functions."""
        ...

    def place(self, compute: Function | None) -> Function:
        """Take the policy's next function (None: it is computed elsewhere), in the order of its constructor; returns
        the function for the policy to call."""
        ...


class Network(Protocol):
    """The interface of ActingNetwork."""

    def load_state(self, state: Arrays) -> None: ...
    def __call__(self, output: str, inputs: np.ndarray) -> NDArray[np.float32]: ...


_NO_INPUTS: Mapping[str, int | None] = MappingProxyType({})
INPUTS, OUTPUTS = "inputs", "outputs"
"""Names of the arrays of an ActingNetwork's Function."""
_FAST_ENOUGH_S = 2e-4
"""Seconds per call. Below this time torch cannot save the 1.5 s of its import."""
_TRIAL_S, _TRIAL_CALLS = 0.02, 5
"""Least time, and least number of calls, to time each implementation."""
_CLEARLY = 1.15
"""An implementation must be faster by this factor than those before: timings on a busy machine vary."""


@dataclass(frozen=True)
class Choice:
    """Lets an output choose its implementation by timing. Called with a description of the choice."""

    log: Callable[[str], None]
    lower: bool
    """True if products may be bfloat16."""

    def __call__(self, text: str) -> None:
        self.log(text)


class ActingNetwork:
    """Computes the outputs of a network by name with the newest weights. All implementations in float32 agree to 1e-5.

    numpy computes perceptrons. For convolutions, numpy and torch are timed on the first observations, and the faster
    implementation stays for all later weights. If a Choice allows bfloat16 and the processor has instructions for it,
    torch in bfloat16 is timed as well: its outputs are within 1 % of the largest. Without `chosen`, convolutions use
    torch and nothing is timed, for callers that must get the same numbers every time. Modules unknown to numpy, and
    devices other than the CPU, always need torch.
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
        """Raises DeviceError if the device does not exist.

        Args:
            make: builds the network, with any weights. Called only if torch is needed.
            timed: name of the output that chooses its implementation by timing.
            inputs: number of inputs of each output that does not read observations; None: not known.
            chosen: see Chosen.
        """
        self._make, self._observation, self._timed, self._inputs = make, observation, timed, inputs
        self._chosen, self._device = chosen, device
        self.arrays: Arrays = {}
        """The newest weights, by name."""
        self._program = b""
        self._programs: Programs = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._forms: dict[str, Form] = {}
        self._forwards: dict[str, Forward] = {}
        if device != "cpu":
            _ = self._torch

    def load_state(self, state: Arrays) -> None:
        """Uses these weights from now on; the caller must not change them afterwards. Raises StateMismatchError and
        keeps the old weights."""
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
            if not self.arrays:
                raise RuntimeError("the policy has no weights yet: call load_state first")
            if output not in self._forms:
                self._forms[output] = self._choose(output, inputs)
            forward = self._forwards[output] = self._make_forward(output, self._forms[output])
        return forward(inputs)

    def compute(self, output: str, arrays: Arrays) -> Arrays:
        """As a Function."""
        return {OUTPUTS: self(output, arrays[INPUTS])}

    # --- which form

    def _choose(self, output: str, inputs: np.ndarray) -> Form:
        steps = self._programs[output]
        if steps is None or self._device != "cpu":
            return "torch"
        if not has_convolutions(steps):
            return "plain arrays"
        if self._chosen is None or output != self._timed:
            return "torch"
        lower = isinstance(self._chosen, Choice) and self._chosen.lower
        form, explanation = fastest(functools.partial(self._make_forward, output), inputs, lower=lower)
        self._chosen(explanation)
        return form

    def _make_forward(self, output: str, form: Form) -> Forward:
        if form == "plain arrays":
            steps = self._programs[output]
            assert steps is not None
            return compiled(steps, self.arrays, self._observation)
        if not self._torch.loaded:
            self._torch.load(self.arrays)
        return self._torch.forward(output, lower=form == "torch in bfloat16")

    @functools.cached_property
    def _torch(self) -> TorchOutputs:
        from remuda.policy.acting.torch_outputs import TorchOutputs  # not above: most collectors need no torch

        return TorchOutputs(self._make, self._device)

    # --- what was published

    def _read(self, program: np.ndarray | None, arrays: Arrays) -> None:
        """Takes over programs and shapes if they have changed. Raises StateMismatchError."""
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


class RemoteNetwork:
    """An ActingNetwork that another process computes. Holds no weights."""

    def __init__(self, compute: Function) -> None:
        self._compute = compute

    def load_state(self, state: Arrays) -> None:
        """Does nothing: the other process loads the weights."""

    def __call__(self, output: str, inputs: np.ndarray) -> NDArray[np.float32]:
        """See ActingNetwork."""
        return cast("NDArray[np.float32]", self._compute(output, {INPUTS: inputs})[OUTPUTS])


@dataclass(frozen=True)
class Inference:
    """Settings for the networks of a policy."""

    source_dir: str | None = None
    """Folder of users' modules."""
    chosen: Chosen = None
    """As the device: see ActingNetwork."""
    device: str = "cpu"
    shared: Shared | None = None
    """Shared inference, if any."""

    def network(
        self,
        folder: str,
        settings: AlgorithmConfig,
        observation: ObservationSpec,
        action: ActionSpec,
        *more: object,
        timed: str,
        inputs: Mapping[str, int | None] = _NO_INPUTS,
    ) -> Network:
        """Makes an ActingNetwork with these settings, of the network by `make_network` in `learning.py` of the
        algorithm's folder; or a RemoteNetwork. The import waits for the network, since it needs torch, and most
        collectors do not. `more` are further arguments of `make_network`."""
        if self.shared is not None and self.shared.elsewhere:
            return RemoteNetwork(self.shared.place(None))

        def make() -> nn.Module:
            made = imported(f"remuda.policy.algorithms.{folder}.learning:make_network")
            return cast("nn.Module", made(settings, observation, action, self.source_dir, *more))

        own = ActingNetwork(make, observation, timed=timed, inputs=inputs, chosen=self.chosen, device=self.device)
        if self.shared is not None:
            self.shared.place(own.compute)
        return own


PLAIN = Inference()


def fastest(make: Callable[[Form], Forward], inputs: np.ndarray, *, lower: bool) -> tuple[Form, str]:
    """Times all implementations on inputs [n, …]; returns the fastest, and a description of the decision. With `lower`,
    also times bfloat16 if the processor has instructions for it."""
    best: Form = "plain arrays"
    plain_s = best_s = _seconds_per_call(make(best), inputs)
    report = f"inference of {len(inputs)} observations: plain arrays {plain_s * 1e3:.2f} ms"
    if plain_s < _FAST_ENOUGH_S:
        return best, f"{report}, which are fast enough"
    forms: tuple[Form, ...] = ("torch", "torch in bfloat16") if lower and _has_bfloat16() else ("torch",)
    for form in forms:
        seconds = _seconds_per_call(make(form), inputs)
        report += f", {form} {seconds * 1e3:.2f} ms"
        if seconds * _CLEARLY < best_s:
            best, best_s = form, seconds
    return best, f"{report}; {best} {'are' if best == 'plain arrays' else 'is'} taken"


def _has_bfloat16() -> bool:
    import torch

    from remuda.policy.networks.precision import Hardware, hardware

    return hardware(torch.device("cpu")) is not Hardware.NOTHING


def _seconds_per_call(forward: Forward, inputs: np.ndarray) -> float:
    """Returns the shortest time of several calls: other work on the machine can only add time."""
    forward(inputs)  # the first call allocates
    times_s: list[float] = []
    while len(times_s) < _TRIAL_CALLS or sum(times_s) < _TRIAL_S:
        started_s = time.perf_counter()
        forward(inputs)
        times_s.append(time.perf_counter() - started_s)
    return min(times_s)
