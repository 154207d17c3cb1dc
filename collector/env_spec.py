"""Describes the environment in the run folder: env_spec.json, and vars.pkl if the environment can be pickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import cast

import gymnasium
from gymnasium.vector import AutoresetMode
from pydantic import JsonValue

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.config.plain import masked
from remuda.config.schema import ExperimentConfig
from remuda.environments.lanes import Copies
from remuda.environments.make import make_single
from remuda.environments.packing import packs
from remuda.environments.spaces import Space, space_structure
from remuda.storage.atomic import write_text
from remuda.storage.env_files import pickle_environment
from remuda.storage.run_folder import RunFolder


def record_environment(
    run: RunFolder, config: ExperimentConfig, copies: Copies, policies: Sequence[str] = ("",)
) -> list[str]:
    """Write both files; return warnings for the log about failures.

    A failure of the disk or of the environment's code does not end the run. The pickled environment is a new single
    environment. Environments with several agents are not pickled.
    """
    warnings = [_written(run, config.env, copies, policies)]
    if config.env.kind != "pettingzoo":
        warnings.append(_keep_copy(run, config))
    return [warning for warning in warnings if warning is not None]


def environment_spec(env: EnvConfig, copies: Copies, policies: Sequence[str] = ("",)) -> dict[str, JsonValue]:
    """Return the description of the environment, sufficient to rebuild it, as JSON (finite numbers only).

    `vectorization` is the chosen value, also for `auto`; `autoreset` names gymnasium's mode. Several agents have
    separate spaces, and the name of the acting policy (empty if all agents share a policy).
    """
    spec: dict[str, JsonValue] = {
        "id": env.id,
        "make": env.make,
        "kwargs": masked(dict(env.kwargs)),
        "max_episode_steps": env.max_episode_steps,
        "num_envs": copies.num_envs,
        "vectorization": copies.vectorization,
        "autoreset": AutoresetMode.NEXT_STEP.value,
    }
    groups = [lanes.group for lanes in copies.lanes]
    if env.kind == "pettingzoo":
        named = [(agent, name, group) for name, group in zip(policies, groups, strict=True) for agent in group.agents]
        spec["agents"] = {
            agent: {"policy": name, **_described(group.observation, group.action)} for agent, name, group in named
        }
    else:
        spec |= _described(groups[0].observation, groups[0].action)
    return spec | {"gymnasium_version": gymnasium.__version__}


def _described(observation: Space, action: Space) -> dict[str, JsonValue]:
    return {"observation_space": _described_space(observation), "action_space": _described_space(action)}


def _described_space(space: Space) -> dict[str, JsonValue]:
    described: dict[str, JsonValue] = {"text": str(space), **space_structure(space)}
    if packs(space):
        described["parts"] = [cast("JsonValue", asdict(part)) for part in space.parts]
        described["unused_parts"] = list(space.unused)
    return described


def _written(run: RunFolder, env: EnvConfig, copies: Copies, policies: Sequence[str]) -> str | None:
    text = json.dumps(environment_spec(env, copies, policies), indent=2) + "\n"
    try:
        write_text(run.env_spec, text, durable=False)
    except OSError as error:
        return f"{run.env_spec.name} was not written ({error}). Nothing else is affected: config.json has its settings."
    return None


def _keep_copy(run: RunFolder, config: ExperimentConfig) -> str | None:
    try:
        with NoExit(), closing(make_single(config.env, source_dir=config.source_dir)) as env:
            return pickle_environment(run.vars_pkl, env)
    except Exception as error:  # anything that the environment's own code raises
        return (
            f"{run.vars_pkl.name} was not written, since an environment for it could not be built, or not be closed "
            f"({type(error).__name__}: {error}). Nothing else is affected."
        )
