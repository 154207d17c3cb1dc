"""What collects in a serial run: for one policy, or for several that act in the same environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from remuda.collector.agents import Turn
from remuda.collector.collected import Collected
from remuda.collector.rollout import Rollout


class Collecting(Protocol):
    """Collects a chunk for each policy at once."""

    rng: np.random.Generator
    """For exploration; its stream can be saved and restored between chunks."""

    def collect(self, env_steps: int, turns: Sequence[Turn]) -> Sequence[Collected]:
        """Take at least so many steps, each policy acting as its turn says; returns the chunk of each. Raises what
        environments and policies raise."""
        ...


class OneRollout:
    """The collector of a run with one agent."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self.rng = rollout.rng

    def collect(self, env_steps: int, turns: Sequence[Turn]) -> Sequence[Collected]:
        """See Collecting; there is one turn."""
        (turn,) = turns
        return [self._rollout.collect(env_steps, turn.exploration, policy_ref=turn.policy)]
