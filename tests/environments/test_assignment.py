"""Each agent belongs to exactly one policy, and each policy learns under settings of its own."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import AGAINST_PAST, agent_columns, assigned, policy_config
from remuda.environments.errors import EnvironmentBuildError

AGENTS = ("adversary_0", "agent_0", "agent_1")


def config(**settings: Any) -> ExperimentConfig:
    known = {"name": "game", "env": {"kind": "pettingzoo", "make": "m:f", "num_envs": 4}}
    return ExperimentConfig.model_validate(known | settings)


def policies(**patterns: list[str]) -> dict[str, Any]:
    return {name: {"agents": its} for name, its in patterns.items()}


def test_without_policies_all_agents_share_one() -> None:
    assert assigned(config(), AGENTS) == {"": AGENTS}


def test_patterns_are_those_of_file_names() -> None:
    of = assigned(config(policies=policies(bad=["adversary_*"], good=["agent_?"])), AGENTS)
    assert of == {"bad": ("adversary_0",), "good": ("agent_0", "agent_1")}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"bad": ["adversary_*"]}, "agent agent_0 belongs to no policy; the environment's agents are adversary_0, ag"),
        ({"bad": ["a*"], "good": ["agent_*"]}, r"agent agent_0 belongs to several policies \(bad, good\)"),
        ({"all": ["*"], "none": ["x*"]}, r"policies.none.agents \(x\*\) names no agent"),
    ],
)
def test_an_agent_without_or_with_two_policies_is_named(patterns: dict[str, list[str]], message: str) -> None:
    with pytest.raises(EnvironmentBuildError, match=message):
        assigned(config(policies=policies(**patterns)), AGENTS)


def test_the_environments_of_a_policy_are_the_lanes_of_its_agents() -> None:
    """4 copies with 2 agents are 8 lanes; the returns of both agents are reported; seeds differ, and stop_value is for
    all together."""
    run = config(policies=policies(bad=["adversary_*"], good=["agent_*"]), stop={"stop_value": 3.0}, seed=5)
    bad, good = (policy_config(run, name, its) for name, its in assigned(run, AGENTS).items())
    assert (bad.env.num_envs, good.env.num_envs) == (4, 8)
    assert bad.env.episode_info == ()
    assert good.env.episode_info == ("return_agent_0", "return_agent_1")
    assert bad.seed == 5
    assert good.seed not in (5, bad.seed)
    assert bad.stop.stop_value is good.stop.stop_value is None
    assert not bad.policies


def test_a_shared_policy_keeps_seed_and_stop_value() -> None:
    run = config(stop={"stop_value": 3.0}, seed=5, self_play={"share": 0.5})
    own = policy_config(run, "", AGENTS)
    assert (own.env.num_envs, own.seed, own.stop.stop_value) == (12, 5, 3.0)
    assert own.env.episode_info[-1] == AGAINST_PAST


def test_names_of_agents_become_names_of_columns() -> None:
    assert agent_columns(["left-1", "left 2"]) == {"left-1": "return_left_1", "left 2": "return_left_2"}
    assert agent_columns(["a_1", "a1"]) == {"a_1": "return_0", "a1": "return_1"}, "columns would be the same"
    assert agent_columns(["alone"]) == {}
    assert agent_columns([f"a{n}" for n in range(33)]) == {}
