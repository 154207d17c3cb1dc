"""Rollouts of one policy, whose chunks tests look at one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from remuda.collector.collected import Collected
from remuda.collector.environments import make_rollout
from remuda.collector.recorder import Behavior, PolicySetup
from remuda.collector.rollout import Rollout
from remuda.collector.rows import Rows
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Copies
from remuda.environments.vectors import Vector, VectorCopies
from remuda.policy.base import Policy
from remuda.wire.messages import PolicyRef


class OneRollout:
    """Collects from a vector of environments with one agent each."""

    def __init__(
        self,
        vector: Vector | Copies,
        policy: Policy,
        *,
        rows: Rows,
        seeds: Sequence[int],
        rng: np.random.Generator | None = None,
        metrics: Sequence[str] = (),
        episode_info: Sequence[str] = (),
        **options: Any,
    ) -> None:
        setup = PolicySetup(policy=policy, rows=rows, metrics=metrics, episode_info=episode_info)
        rng = np.random.default_rng(0) if rng is None else rng
        self.rollout = Rollout(_copies(vector), [setup], rng=rng, seeds=seeds, **options)

    @classmethod
    def made(cls, config: ExperimentConfig, vector: Vector | Copies, policy: Policy, **options: Any) -> OneRollout:
        """As a collector makes it."""
        one = cls.__new__(cls)
        options = {"index": 0, "collectors": 1, "generation": 0} | options
        one.rollout = make_rollout(config, _copies(vector), [(config, policy)], **options)
        return one

    def collect(
        self,
        env_steps: int,
        exploration: Mapping[str, float] | None = None,
        *,
        policy_ref: PolicyRef | None = None,
        longest_s: float | None = None,
    ) -> Collected:
        behavior = Behavior(exploration or {}, policy_ref or PolicyRef())
        (collected,) = self.rollout.collect(env_steps, [behavior], longest_s=longest_s)
        return collected

    def move(self, vector: Vector | Copies, seeds: Sequence[int]) -> None:
        self.rollout.move(_copies(vector), seeds)

    def flush(self) -> Collected:
        (collected,) = self.rollout.flush()
        return collected


def _copies(vector: Vector | Copies) -> Copies:
    return VectorCopies(vector, "the vector") if isinstance(vector, VectorEnv) else vector
