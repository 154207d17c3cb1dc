"""The inputs and outputs of exported policies: floats, one array by name for each part of an observation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from remuda.policy.spaces import ObservationSpec

OBSERVATION = "observation"
"""The name of an observation that has no parts."""
STATE, LEGAL, ACTION, VALUE, NEXT_STATE = "state", "legal", "action", "value", "next_state"
Floats = NDArray[np.float32]


def part_shapes(observation: ObservationSpec) -> dict[str, tuple[int, ...]]:
    """The shape of each part of an observation by the name of its input: those of a Dict or Tuple have the keys and
    positions that lead to them, `observation.` before those that are no name of their own."""
    if not observation.parts:
        return {OBSERVATION: observation.shape}
    taken = (STATE, STATE, LEGAL, ACTION, VALUE, NEXT_STATE)
    named: dict[str, tuple[int, ...]] = {}
    for part in observation.parts:
        own = part.name not in taken and not part.name[:1].isdigit()
        named[(part.name if own else f"{OBSERVATION}.{part.name}") or OBSERVATION] = part.shape
    return named


def as_floats(observation: ObservationSpec, observations: np.ndarray) -> dict[str, Floats]:
    """Observations [n, …], as Remuda's policies take them, as the inputs of an exported policy: each [n, *shape]."""
    shapes = part_shapes(observation)
    if not observation.parts:
        return {OBSERVATION: observations.astype(np.float32)}
    return {
        name: part.of(observations).astype(np.float32) for name, part in zip(shapes, observation.parts, strict=True)
    }
