"""A policy with named float inputs: the module that every exported file is made of."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math

import torch
from torch import nn

from remuda.environments.packed_part import PackedPart
from remuda.policy.files.named_inputs import ACTION, LEGAL, NEXT_STATE, STATE, VALUE, as_floats, part_shapes
from remuda.policy.networks.portable import Portable
from remuda.policy.networks.tensors import masked
from remuda.policy.spaces import ActionSpec, ObservationSpec


def _meanings(observation: ObservationSpec) -> dict[str, str]:
    parts: list[PackedPart | ObservationSpec] = [*(observation.parts or (observation,))]
    return {name: _meaning(part) for name, part in zip(part_shapes(observation), parts, strict=True)}


def _meaning(part: PackedPart | ObservationSpec) -> str:
    if isinstance(part, ObservationSpec) and part.n is not None:
        return f"a whole number, {part.start} to {part.start + part.n - 1}"
    if isinstance(part, PackedPart) and part.counts:
        most = [start + count - 1 for start, count in zip(part.starts, part.counts, strict=True)]
        return f"whole numbers, {list(part.starts)} to {most}"
    return {"uint8": "bytes, 0 to 255", "bool": "0 or 1"}.get(part.dtype, "as the environment gives it")


class Deployable(nn.Module):
    """Takes the parts of observations as float32 [batch, *shape], then what it carries through episodes if it is
    recurrent, then which actions are legal if it chooses among them. Returns the best actions, the network's outputs,
    the values, and what to carry on.

    Shares its network with the policy that it is made of.
    """

    def __init__(self, portable: Portable, observation: ObservationSpec, action: ActionSpec, *, masks: bool) -> None:
        """`masks`: it can choose among the legal actions alone."""
        super().__init__()
        self.portable = portable
        self._shapes = part_shapes(observation)
        self._parts = observation.parts
        self.meanings = _meanings(observation)
        """What the parts of an observation are, by name."""
        self.choices = sum(action.components) if masks else 0
        """Numbers of `legal`: one for each value of each component; 0: it has no such input."""

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of each input by name, without the batch; `legal`, which may be left out, is the last."""
        state = {STATE: (self.portable.state_size,)} if self.portable.state_size else {}
        return {**self._shapes, **state, **({LEGAL: (self.choices,)} if self.choices else {})}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Their names."""
        return (ACTION, self.portable.output_name, VALUE, *((NEXT_STATE,) if self.portable.state_size else ()))

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Answer the inputs in their order; without `legal` all actions are."""
        policy, count = self.portable, len(self._shapes)
        others = list(given[count:])
        seen, after = policy.seen(self._joined(given[:count]), others.pop(0) if policy.state_size else None)
        outputs = policy.outputs(seen)
        best = policy.best(masked(outputs, others[0] > 0 if others else None))
        return best, outputs, policy.values(seen), *(() if after is None else (after,))

    def with_legal(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The same with `legal`: a method of its own for TorchScript, whose methods have a fixed number of inputs."""
        return self.forward(*given)

    def _joined(self, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The observation as a Portable takes it; of several parts, the numbers of each from its offset on."""
        if not self._parts:
            return parts[0]
        rows: list[torch.Tensor] = []
        for part, numbers in zip(self._parts, parts, strict=True):
            size = math.prod(part.shape)
            rows.append(numbers.reshape(-1, size))
            rows.append(rows[-1][:, :1] * torch.zeros(1, part.bytes - size))  # to where the next part begins
        return torch.cat(rows, dim=1)


def example_of(deployable: Deployable, observation: ObservationSpec, batch: int = 2) -> tuple[torch.Tensor, ...]:
    """Inputs to trace it with, `legal` among them if it has one."""
    parts = as_floats(observation, observation.example(batch))
    shapes = {name: (batch, *shape) for name, shape in deployable.inputs.items()}
    return tuple(
        torch.from_numpy(parts[name]) if name in parts else torch.ones(shape) for name, shape in shapes.items()
    )
