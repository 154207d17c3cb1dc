"""Copies of an environment with one agent, with the results of a step for the caller to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from remuda.config.environment import EnvConfig
from remuda.environments.copies import make_copies
from remuda.environments.lanes import AGENT, Copies
from remuda.environments.spaces import Array, Space

Info: TypeAlias = Mapping[str, Any]


def copies_of(env: EnvConfig, *, num_envs: int, source_dir: str | None, **settings: Any) -> Copies:
    return make_copies(env, {"": (AGENT,)}, num_envs=num_envs, source_dir=source_dir, **settings)


def spaces_of(copies: Copies) -> tuple[Space, Space]:
    return copies.lanes[0].group.observation, copies.lanes[0].group.action


def begun(copies: Copies, seeds: Sequence[int] | None) -> Array:
    copies.reset(seeds)
    return copies.lanes[0].observations.copy()


def stepped(copies: Copies, actions: Array) -> tuple[Array, Array, Array, Array, Any]:
    """Observations, rewards, terminated, truncated, info."""
    copies.step([actions])
    (lanes,) = copies.lanes
    return (lanes.observations.copy(), lanes.reward.copy(), lanes.terminated.copy(), lanes.truncated.copy(), lanes.info)
