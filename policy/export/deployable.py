"""A policy with named float inputs, as content of exported files, and the comparison with such a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remuda.environments.packed_part import PackedPart
from remuda.policy.base import ValuingActor
from remuda.policy.files.exported_policies import Run
from remuda.policy.files.model_artifact import (
    ACTION,
    LEGAL,
    NEXT_STATE,
    STATE,
    VALUE,
    Parity,
    as_floats,
    part_shapes,
)
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
    """Takes the parts of observations as float32 [batch, *shape], then the state (if recurrent), then the legal actions
    (if masked). Returns the best actions, the network's outputs, the values, and the next state.

    Shares its network with the policy.
    """

    def __init__(self, portable: Portable, observation: ObservationSpec, action: ActionSpec, *, masks: bool) -> None:
        """`masks`: True if it accepts legal actions."""
        super().__init__()
        self.portable = portable
        self._shapes = part_shapes(observation)
        self._parts = observation.parts
        self.meanings = _meanings(observation)
        """Description of each part of an observation, by name."""
        self.choices = sum(action.components) if masks else 0
        """Size of the input `legal`: a number per value of every component; 0: no input."""

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input by name, without the batch; the optional `legal` is last."""
        state = {STATE: (self.portable.state_size,)} if self.portable.state_size else {}
        return {**self._shapes, **state, **({LEGAL: (self.choices,)} if self.choices else {})}

    @property
    def outputs(self) -> tuple[str, ...]:
        return (ACTION, self.portable.output_name, VALUE, *((NEXT_STATE,) if self.portable.state_size else ()))

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Compute the outputs for the inputs in order; without `legal`, all actions are legal."""
        policy, count = self.portable, len(self._shapes)
        others = list(given[count:])
        seen, after = policy.seen(self._joined(given[:count]), others.pop(0) if policy.state_size else None)
        outputs = policy.outputs(seen)
        best = policy.best(masked(outputs, others[0] > 0 if others else None))
        return best, outputs, policy.values(seen), *(() if after is None else (after,))

    def with_legal(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Same as `forward` with `legal`: a separate method, since methods in TorchScript have a fixed number of
        inputs."""
        return self.forward(*given)

    def _joined(self, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Join the parts to an observation for a Portable, with the numbers of a part from the part's offset on."""
        if not self._parts:
            return parts[0]
        rows: list[torch.Tensor] = []
        for part, numbers in zip(self._parts, parts, strict=True):
            size = math.prod(part.shape)
            rows.append(numbers.reshape(-1, size))
            rows.append(rows[-1][:, :1] * torch.zeros(1, part.bytes - size))  # to where the next part begins
        return torch.cat(rows, dim=1)


def example_of(deployable: Deployable, observation: ObservationSpec) -> tuple[torch.Tensor, ...]:
    """Make inputs for a trace, two of each, including `legal` if accepted."""
    parts = as_floats(observation, observation.example(2))
    shapes = {name: (2, *shape) for name, shape in deployable.inputs.items()}
    return tuple(
        torch.from_numpy(parts[name]) if name in parts else torch.ones(shape) for name, shape in shapes.items()
    )


@dataclass(frozen=True)
class Recorded:
    """Successive observations."""

    observations: np.ndarray
    """[n, …], as for policies."""
    begins: NDArray[np.bool_]
    """[n]: True at the begin of an episode, or if the observation before is unknown."""
    legal: NDArray[np.bool_] | None
    """[n, actions]: legal actions; None if environments do not give them."""
    source: str
    """Origin of the observations, for people."""

    def __len__(self) -> int:
        return len(self.observations)


_AT_ONCE = 256
"""Observations per call, without a state."""


class Comparison:
    """Asks both about the same observations."""

    def __init__(self, policy: ValuingActor, portable: Portable, observation: ObservationSpec) -> None:
        """`policy` gives the reference actions and values, `portable` the reference outputs."""
        self._policy, self._portable, self._observation = policy, portable, observation

    def parity(self, run: Run, recorded: Recorded) -> Parity:
        """Compare the answers of `run` with the policy."""
        answers = [np.concatenate(each) for each in zip(*self._answers(run, recorded), strict=True)]
        own, other = answers[:3], answers[3:]
        actions = np.isclose(other[0], own[0], rtol=1e-5, atol=1e-5).reshape(len(recorded), -1)
        differences = [
            float(np.abs(one.astype(np.float64) - two.astype(np.float64)).max(initial=0.0))
            for one, two in zip(own, other, strict=True)
        ]
        return Parity(
            observations=len(recorded),
            source=recorded.source,
            equal_actions=float(actions.all(1).mean()),
            largest_action_difference=differences[0],
            largest_output_difference=differences[1],
            largest_value_difference=differences[2],
            largest_number=float(max(np.abs(each).max(initial=0.0) for each in own[1:])),
        )

    @torch.no_grad()
    def _answers(self, run: Run, recorded: Recorded) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield actions, outputs and values by the policy, then by the file, of groups of observations."""
        size, rng = self._portable.state_size, np.random.default_rng(0)
        states: list[np.ndarray] = []
        for first in range(0, len(recorded), 1 if size else _AT_ONCE):
            if size and (not first or recorded.begins[first]):
                states = [np.zeros((1, size), np.float32) for _ in range(4)]  # of actions, values, outputs, the file
            acting, valuing, *others = states or (None, None)
            rows = slice(first, first + (1 if size else _AT_ONCE))
            seen, legal = recorded.observations[rows], None if recorded.legal is None else recorded.legal[rows]
            action = self._policy.act(seen, {}, rng, deterministic=True, legal=legal, state=acting)
            value = self._policy.value(seen, state=valuing)
            inputs = (np.ascontiguousarray(seen, self._observation.dtype), *others[:1])
            outputs = self._portable(*map(torch.from_numpy, inputs))
            given = {**as_floats(self._observation, seen), **({STATE: others[1]} if size else {})}
            answer = run(given if legal is None else {**given, LEGAL: legal.astype(np.float32)})
            if size:
                outputs, after = outputs
                states[2:] = after.numpy(), answer[-1]
            yield action, outputs.numpy(), value, *answer[:3]
