"""Assigns agents to policies, and gives each policy its learning settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.seeding import generator

AGAINST_PAST = "against_past"
"""The name under which the returns of episodes against older checkpoints stand among what episodes report."""
MOST_NAMED_AGENTS = 32
"""Of policies with more agents, no returns of single agents are logged."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def assigned(config: ExperimentConfig, agents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The agents of each policy, in their order, by name, sorted; where all share one policy its name is empty.

    Raises EnvironmentBuildError for an agent without a policy, or with two, and for a policy without an agent.
    """
    if not config.policies:
        return {"": tuple(agents)}
    known = f"the environment's agents are {_listed(agents)}"
    owners = {agent: _owners(config, agent) for agent in agents}
    for agent, names in owners.items():
        if len(names) != 1:
            found = f"belongs to several policies ({', '.join(names)})" if names else "belongs to no policy"
            raise EnvironmentBuildError(f"policies: agent {agent} {found}; {known}: change policies.<name>.agents")
    of_policy = {name: tuple(agent for agent in agents if owners[agent] == [name]) for name in sorted(config.policies)}
    for name, its in of_policy.items():
        if not its:
            patterns = _listed(config.policies[name].agents)
            raise EnvironmentBuildError(f"policies.{name}.agents ({patterns}) names no agent; {known}")
    return of_policy


def policy_config(config: ExperimentConfig, name: str, agents: Sequence[str]) -> ExperimentConfig:
    """The settings under which the policy of this name learns, as those of a run of its own: its environments are all
    lanes of its agents (see remuda.environments.lanes). With several policies each has another seed, and
    `stop.stop_value` is left out, since all policies have to reach it."""
    own = config.of_policy(name) if name else config
    reported = agent_columns(agents)
    past = (AGAINST_PAST,) if config.self_play.share else ()
    env = own.env.model_copy(
        update={
            "agents": tuple(agents),
            "num_envs": own.env.num_envs * len(agents),
            "episode_info": (*own.env.episode_info, *reported.values(), *past),
        }
    )
    changed: dict[str, object] = {"env": env}
    if len(config.policies) > 1:
        place = sorted(config.policies).index(name)  # as a run folder's config.json has them
        if place:
            changed["seed"] = int(generator(config.seed, "learner", place, "policy").integers(2**31))
        changed["stop"] = own.stop.model_copy(update={"stop_value": None})
    return own.model_copy(update=changed)


def configs_of_policies(config: ExperimentConfig, agents: Sequence[str] | None = None) -> dict[str, ExperimentConfig]:
    """The settings of each policy of a run, by its name, sorted: those of a run of its own, see policy_config. One
    policy alone has an empty name. `agents` are those of the environment (None: `env.agents`, which submitted runs
    have). Raises EnvironmentBuildError if agents and `policies` do not fit."""
    if config.env.kind != "pettingzoo":
        return {"": config}
    of_policy = assigned(config, config.env.agents if agents is None else agents)
    return {name: policy_config(config, name, its) for name, its in of_policy.items()}


def config_of_policy(config: ExperimentConfig, name: str = "") -> ExperimentConfig:
    """The same of one policy."""
    return configs_of_policies(config)[name]


def agent_columns(agents: Sequence[str]) -> dict[str, str]:
    """Under which names the returns of single agents are reported, by agent; empty where there is one agent, or too
    many."""
    if not 1 < len(agents) <= MOST_NAMED_AGENTS:
        return {}
    names = [f"return_{_NOT_IN_NAMES.sub('_', agent)}"[:50] for agent in agents]
    if len({name.replace("_", "").lower() for name in names}) < len(names):
        names = [f"return_{number}" for number in range(len(agents))]
    return dict(zip(agents, names, strict=True))


def _owners(config: ExperimentConfig, agent: str) -> list[str]:
    return [name for name, one in config.policies.items() if any(fnmatchcase(agent, pattern) for pattern in one.agents)]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, … ({len(names)} in all)" if len(names) > 8 else shown
