"""Policies without weights, for tests of callers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from remuda.environments.spaces import Array
from remuda.policy.base import Arrays, Policy


class Untaught(Policy):
    """Is asked for actions and for nothing else."""

    def load_state(self, state: Arrays) -> None:
        raise NotImplementedError

    def value(self, observations: Array, *, state: Array | None = None) -> Array:
        raise NotImplementedError


class Still(Untaught):
    """Takes action 0, always."""

    def act(
        self,
        observations: Array,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: Array | None = None,
        state: Array | None = None,
    ) -> Array:
        return np.zeros(len(observations), np.int64)
