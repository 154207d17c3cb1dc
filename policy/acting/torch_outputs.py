"""Outputs of a network by its own modules in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.compiled import Forward
from remuda.policy.networks.program import PROGRAM, Programs
from remuda.policy.networks.reading import Acts, programs_of
from remuda.policy.networks.tensors import to_tensor, usable
from remuda.policy.saved_state import require_fit
from remuda.policy.spaces import ActionSpec, ObservationSpec

CPU = torch.device("cpu")


class TorchOutputs:
    """The modules of a network's outputs, on a device."""

    def __init__(self, make: Callable[[], nn.Module], device: str) -> None:
        """Raises DeviceError if the device does not exist."""
        self._device = usable(device, setting="collector.device")
        self._network = make().to(self._device).eval().requires_grad_(False)
        assert isinstance(self._network, Acts)
        self._outputs = dict(self._network.acting())
        self.programs: Programs = programs_of(self._network)
        """Programs for numpy, by output."""
        self.loaded = False
        """True once the network has weights."""

    def require_fit(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises StateMismatchError unless arrays of these shapes are the network's state."""
        expected = {name: tuple(tensor.shape) for name, tensor in self._network.state_dict().items()}
        given = {name: np.empty(shape, np.bool_) for name, shape in shapes.items() if not name.endswith(PROGRAM)}
        require_fit(expected, given, what="policy")

    def load(self, arrays: Arrays) -> None:
        """Computes with these weights from now on. Copies them: results depend on the alignment of memory."""
        own = {name: to_tensor(array, CPU) for name, array in arrays.items() if not name.endswith(PROGRAM)}
        self._network.load_state_dict(own)
        self.loaded = True

    def forward(self, output: str, *, lower: bool = False) -> Forward:
        """Returns the forward pass of an output. With `lower`, all layers but the last compute in bfloat16."""
        module, device = self._outputs[output], self._device

        @torch.inference_mode()
        def forward(inputs: np.ndarray) -> NDArray[np.float32]:
            with torch.autocast(device.type, torch.bfloat16, enabled=lower):
                outputs: torch.Tensor = module(to_tensor(inputs, device))
            return outputs.float().cpu().numpy()

        return forward


class NetworkPolicy(Policy):
    """Acts on the outputs of a network. A subclass defines action (`act`) and value (`value`) for the outputs."""

    def __init__(
        self, network: torch.nn.Module, observation: ObservationSpec, action: ActionSpec, *, device: str = "cpu"
    ) -> None:
        """Moves the network to `device`. The network reads observations encoded by ObservationSpec.encode, [n, …]."""
        self.network = network.to(device).eval().requires_grad_(False)
        self.observation, self.action = observation, action
        self._device = torch.device(device)
        self._shapes = {name: tuple(tensor.shape) for name, tensor in self._state().items()}

    def load_state(self, state: Arrays) -> None:
        """Acts with these weights from now on. Raises StateMismatchError and keeps the old weights."""
        require_fit(self._shapes, state, what="policy")
        for name, tensor in self._state().items():
            tensor.copy_(torch.tensor(state[name]))

    def outputs(self, observations: np.ndarray) -> np.ndarray:
        """Computes the network's outputs for observations [n, …] of environments."""
        seen = torch.tensor(self.observation.encode(observations), device=self._device)
        with torch.inference_mode():
            given: torch.Tensor = self.network(seen)
        return given.cpu().numpy()

    def _state(self) -> dict[str, torch.Tensor]:
        return dict(self.network.state_dict())
