"""What steps environments for a collector: one policy's vector, or copies in which agents of one or several act."""

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

    def collect(self, env_steps: int, turns: Sequence[Turn], *, longest_s: float | None = None) -> Sequence[Collected]:
        """Take at least so many steps, each policy acting as its turn says; returns the chunk of each. Chunks of single
        steps end sooner when `longest_s` has passed. Raises what environments and policies raise."""
        ...

    def flush(self) -> Sequence[Collected]:
        """The rows of each policy that wait for later steps; see Rollout."""
        ...


class OneRollout:
    """Of environments with one agent."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self.rng = rollout.rng

    def collect(self, env_steps: int, turns: Sequence[Turn], *, longest_s: float | None = None) -> Sequence[Collected]:
        """See Collecting; there is one turn."""
        (turn,) = turns
        return [self._rollout.collect(env_steps, turn.exploration, policy_ref=turn.policy, longest_s=longest_s)]

    def flush(self) -> Sequence[Collected]:
        """See Collecting."""
        return [self._rollout.flush()]
