"""Settings of several policies: what each takes from the sections of the whole config, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import ValidationError

from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.dump import changed_settings, write_configs
from remuda.config.errors import ConfigError
from remuda.config.load import load_config, load_settings
from remuda.config.readers import parse_override
from remuda.config.schema import ExperimentConfig
from remuda.tests.config.files import write
from remuda.wire.messages.parts import Role

GAME: dict[str, Any] = {
    "name": "game",
    "env": {"kind": "pettingzoo", "make": "game:make"},
    "policy": {"type": "ppo", "hidden": [16], "clip": 0.1, "horizon_steps": 32},
    "learner": {"learning_rate": 0.002, "max_grad_norm": 1.0},
    "policies": {
        "hare": {"agents": ["hare_*"]},
        "fox": {
            "agents": ["fox"],
            "policy": {"clip": 0.3},
            "learner": {"learning_rate": 0.01},
            "buffer": {"max_policy_lag": 1},
        },
        "owl": {"agents": ["owl"], "policy": {"type": "dqn", "hidden": [8]}},
    },
}


def game(**settings: Any) -> ExperimentConfig:
    return ExperimentConfig.model_validate(GAME | settings)


def test_a_policy_names_only_what_differs() -> None:
    config = game()
    hare, fox, owl = (config.of_policy(name) for name in ("hare", "fox", "owl"))
    assert (hare.policy, hare.learner, hare.buffer) == (config.policy, config.learner, config.buffer)
    assert fox.policy == config.policy.model_copy(update={"clip": 0.3})
    assert (fox.learner.learning_rate, fox.learner.max_grad_norm) == (0.01, 1.0)
    assert fox.buffer.max_policy_lag == 1
    assert owl.policy == DqnConfig(hidden=(8,)), "of another type: nothing is taken from above"
    assert not fox.policies


def test_a_mistake_in_a_section_of_all_policies_is_told_once(tmp_path: Path) -> None:
    wrong = GAME | {"policy": {"type": "ppo", "clip": "much", "hiden": [16]}, "learner": {"max_grad_norm": -1}}
    wrong["policies"] = {"hare": GAME["policies"]["hare"], "fox": {"agents": ["fox"], "policy": {"clip": "more"}}}
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, yaml.safe_dump(wrong)))
    settings = sorted(problem.split(": ")[1] for problem in caught.value.problems)
    assert settings == ["learner.max_grad_norm", "policies.fox.policy.clip", "policy.clip", "policy.hiden"]


OVERRIDES = ["learner.learning_rate=0.5", "policy.clip=0.2", "buffer.capacity=2000", "policies.owl.policy.hidden=[9]"]


@pytest.mark.parametrize("source", ["config.json", "formatted_total_config.py", "total_config.py", "a program"])
def test_overrides_of_a_runs_own_config_are_those_of_the_users_file(tmp_path: Path, source: str) -> None:
    """What the sections of the whole config say holds for all policies that do not differ."""
    path = write(tmp_path, yaml.safe_dump(GAME))
    config, wanted = load_config(path).config, load_config(path, overrides=OVERRIDES).config
    hare, fox, owl = (wanted.policies[name] for name in ("hare", "fox", "owl"))
    assert (hare.learner.learning_rate, fox.learner.learning_rate, owl.learner.learning_rate) == (0.5, 0.01, 0.5)
    assert (fox.buffer.capacity, fox.buffer.max_policy_lag) == (2000, 1)
    if source == "a program":
        given = [parse_override(one) for one in OVERRIDES]
        assert load_settings(config, overrides=given, folder=tmp_path).config == wanted
        return
    (tmp_path / "run").mkdir()
    write_configs(tmp_path / "run", config, {})
    run = tmp_path / "run" / source
    assert load_config(run).config == config
    assert load_config(run, overrides=OVERRIDES).config == wanted


def test_a_resumed_run_tells_the_settings_that_have_changed(tmp_path: Path) -> None:
    write_configs(tmp_path, game(), {})
    assert changed_settings(tmp_path, game()) == []
    now = load_config(tmp_path / "config.json", overrides=["learner.learning_rate=0.5"]).config
    assert [line for line in changed_settings(tmp_path, now) if "source_dir" not in line] == [
        "learner.learning_rate is 0.5 and was 0.002"
    ]


@pytest.mark.parametrize("role", get_args(Role))
def test_a_policy_is_not_named_like_the_log_folder_of_a_role(role: str) -> None:
    with pytest.raises(ValidationError, match=f"{role} is the name of a folder of logs"):
        game(policies={role: {"agents": ["*"]}})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env": {"id": "CartPole-v1"}}, "policies is for environments with several agents: set env.kind to petting"),
        ({"env": {"id": "CartPole-v1"}, "policies": {}, "self_play": {"share": 0.1}}, "self_play.share is for environ"),
        ({"policies": {"Hare": {"agents": ["*"]}}}, "should match pattern"),
        ({"policies": {"commander": {"agents": ["*"]}}}, "commander is the name of a folder of logs: choose another"),
        (
            {"policies": {"a": {"agents": ["a"]}, "b": {"agents": ["b"], "policy": {"horizon_steps": 8}}}},
            r"horizon_steps has to be the same in all policies \(a: 32, b: 8\)",
        ),
        (
            {"policies": {"a": {"agents": ["a"], "policy": {"type": "dqn"}, "buffer": {"capacity": 10}}}},
            r"policies.a: buffer.min_rows \(1000\) is more than buffer.capacity \(10\)",
        ),
        ({"env": {"kind": "pettingzoo", "make": "m:f", "vectorization": "native"}}, "env.vectorization is native"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        game(**settings)


def test_a_wrong_setting_of_a_policy_is_found_in_the_file(tmp_path: Path) -> None:
    text = yaml.safe_dump(GAME).replace("learning_rate: 0.01", "learning_rat: 0.01")
    with pytest.raises(ConfigError) as error:
        load_config(write(tmp_path, text))
    line = text.splitlines().index("      learning_rat: 0.01") + 1
    assert list(error.value.problems) == [
        f"{tmp_path / 'c.yaml'}:{line}: policies.fox.learner.learning_rat: no such setting; did you mean "
        "policies.fox.learner.learning_rate?"
    ]


def test_agents_that_were_filled_in_are_no_change_of_the_user(tmp_path: Path) -> None:
    env = {"kind": "pettingzoo", "make": "game:make"}
    submitted = game(policies={}, env={**env, "agents": ["fox", "owl"]})
    write_configs(tmp_path, submitted, {})
    assert changed_settings(tmp_path, game(policies={})) == []
    other = game(policies={}, env={**env, "agents": ["fox"]})
    assert changed_settings(tmp_path, other) == ['env.agents is ["fox"] and was ["fox", "owl"]']
