"""The description of the environment in the run folder: env_spec.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

import gymnasium
from gymnasium.vector import AutoresetMode
from pydantic import JsonValue

from remuda.config.environment import EnvConfig
from remuda.config.plain import masked
from remuda.environments.agents import AgentsVector
from remuda.environments.packing import packs
from remuda.environments.spaces import Space, space_structure
from remuda.environments.vectors import Vector, single_spaces, vectorization


def environment_spec(env: EnvConfig, vector: Vector) -> dict[str, JsonValue]:
    """Return everything that describes the environment and is needed to rebuild it, as JSON (finite numbers only).

    `vectorization` is the one that was chosen, also with `auto`; `autoreset` names gymnasium's mode.
    """
    observation, action = single_spaces(vector)
    return {
        "id": env.id,
        "make": env.make,
        "kwargs": masked(dict(env.kwargs)),
        "max_episode_steps": env.max_episode_steps,
        "num_envs": vector.num_envs,
        "vectorization": vectorization(vector),
        "autoreset": vector.metadata["autoreset_mode"].value,
        "observation_space": _described(observation),
        "action_space": _described(action),
        "gymnasium_version": gymnasium.__version__,
    }


def agents_spec(env: EnvConfig, vector: AgentsVector, policies: Sequence[str]) -> dict[str, JsonValue]:
    """The same of an environment with several agents: spaces by agent, and which policy acts for it (an empty name
    where all share one)."""
    agents: dict[str, JsonValue] = {}
    for name, lanes in zip(policies, vector.lanes, strict=True):
        group = lanes.group
        for agent in group.agents:
            agents[agent] = {
                "policy": name,
                "observation_space": _described(group.observation),
                "action_space": _described(group.action),
            }
    return {
        "id": env.id,
        "make": env.make,
        "kwargs": masked(dict(env.kwargs)),
        "max_episode_steps": env.max_episode_steps,
        "num_envs": vector.num_envs,
        "vectorization": "sync",
        "autoreset": AutoresetMode.NEXT_STEP.value,
        "agents": agents,
        "gymnasium_version": gymnasium.__version__,
    }


def _described(space: Space) -> dict[str, JsonValue]:
    described: dict[str, JsonValue] = {"text": str(space), **space_structure(space)}
    if packs(space):
        described["parts"] = [cast("JsonValue", asdict(part)) for part in space.parts]
        described["unused_parts"] = list(space.unused)
    return described
