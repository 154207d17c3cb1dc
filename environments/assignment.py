"""Assigns agents to policies, and gives each policy its learning settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.seeding import generator

AGAINST_PAST = "against_past"
"""Name of the returns of episodes against older checkpoints, among an episode's reported values."""
SCORE = "score"
"""Name of the results of games in a league's evaluations: 1 is won, 0.5 drawn, 0 lost."""
RATING = "rating"
"""Name of the rating of a checkpoint in a league: lower bound, middle, upper bound."""
MOST_NAMED_AGENTS = 32
"""Of policies with more agents, no returns of single agents are logged."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def assigned(config: ExperimentConfig, agents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the agents of each policy by its name, sorted, in the agents' order. A policy shared by all has an empty
    name.

    Raises EnvironmentBuildError for an agent without a policy, or with two, and for a policy without an agent.
    """
    if not config.policies:
        return {"": tuple(agents)}
    known = f"the environment's agents are {_listed(agents)}"
    owners = {
        agent: [name for name, one in config.policies.items() if any(fnmatchcase(agent, each) for each in one.agents)]
        for agent in agents
    }
    in_league = config.self_play.league is not None  # there each policy acts for all agents by turns
    for agent, names in owners.items():
        if in_league and len(names) != len(config.policies):
            raise EnvironmentBuildError(
                f"policies: agent {agent} is missing in a policy; in a league every policy acts for all agents: "
                'change policies.<name>.agents to ["*"]'
            )
        if not in_league and len(names) != 1:
            found = f"belongs to several policies ({', '.join(names)})" if names else "belongs to no policy"
            raise EnvironmentBuildError(f"policies: agent {agent} {found}; {known}: change policies.<name>.agents")
    of_policy = {name: tuple(agent for agent in agents if name in owners[agent]) for name in sorted(config.policies)}
    for name, its in of_policy.items():
        if not its:
            patterns = _listed(config.policies[name].agents)
            raise EnvironmentBuildError(f"policies.{name}.agents ({patterns}) names no agent; {known}")
    return of_policy


def policy_config(config: ExperimentConfig, name: str, agents: Sequence[str]) -> ExperimentConfig:
    """Return the settings of a policy as those of a run of its own. Its environments are all lanes of its agents (see
    remuda.environments.lanes). Each of several policies has another seed, and lacks `stop.stop_value`, which all
    policies have to reach."""
    own = config.of_policy(name) if name else config
    reported = agent_columns(agents)
    past: tuple[str, ...] = (AGAINST_PAST,) if config.self_play.share else ()
    past += (SCORE, RATING) if config.self_play.league is not None else ()
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
    """Return the settings of each policy of a run by its name, sorted (see policy_config). A single policy has an empty
    name. `agents` are the environment's agents (None: `env.agents`, filled in when a run is submitted). Raises
    EnvironmentBuildError if agents and `policies` do not fit."""
    if config.env.kind != "pettingzoo":
        return {"": config}
    of_policy = assigned(config, config.env.agents if agents is None else agents)
    return {name: policy_config(config, name, its) for name, its in of_policy.items()}


def config_of_policy(config: ExperimentConfig, name: str = "") -> ExperimentConfig:
    """Return the settings of a policy (see configs_of_policies)."""
    return configs_of_policies(config)[name]


def agent_columns(agents: Sequence[str]) -> dict[str, str]:
    """Return the names of the returns of single agents, by agent; empty for one agent, or too many."""
    if not 1 < len(agents) <= MOST_NAMED_AGENTS:
        return {}
    names = [f"return_{_NOT_IN_NAMES.sub('_', agent)}"[:50] for agent in agents]
    if len({name.replace("_", "").lower() for name in names}) < len(names):
        names = [f"return_{number}" for number in range(len(agents))]
    return dict(zip(agents, names, strict=True))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, … ({len(names)} in all)" if len(names) > 8 else shown
