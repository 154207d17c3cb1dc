"""What a config leaves out is what the algorithm's authors chose; an explicit value always wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.config.algorithms.base import EXAMPLES
from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.defaults import wrong_default
from remuda.config.dump import sources
from remuda.config.errors import ConfigError
from remuda.config.load import load_config, load_settings
from remuda.config.readers import parse_override
from remuda.config.schema import ExperimentConfig
from remuda.config.section import Section

IMPALA, PPO, DQN = ({"policy": {"type": name}} for name in ("impala", "ppo", "dqn"))


def config(**settings: Any) -> ExperimentConfig:
    return load_settings({"name": "a", "env": {"id": "CartPole-v1"}, **settings}, folder=Path()).config


AUTHORS: dict[str, list[tuple[str, object, str]]] = {
    "dqn": [
        ("buffer.samples_per_insert", 8, "Mnih et al. 2015: 32 rows for each 4 steps"),
        ("policy.discount", 0.99, "Mnih et al. 2015"),
        ("learner.max_grad_norm", 10, "Wang et al. 2016"),
        ("buffer.prioritized", True, "Schaul et al. 2016"),
        ("buffer.priority_exponent", 0.6, "Schaul et al. 2016"),
        ("buffer.importance_exponent", 0.4, "Schaul et al. 2016"),
    ],
    "rainbow": [
        ("learner.batch_size", 32, "Hessel et al. 2018"),
        ("learner.learning_rate", 6.25e-5, "Hessel et al. 2018"),
        ("learner.optimizer_settings", {"eps": 1.5e-4}, "Hessel et al. 2018"),
        ("policy.n_step", 3, "Hessel et al. 2018"),
        ("policy.noisy_sigma", 0.5, "Hessel et al. 2018"),
        ("policy.target_update_iters", 2_000, "Hessel et al. 2018: 32,000 frames, of which an update takes 16"),
        ("buffer.capacity", 1_000_000, "Hessel et al. 2018"),
        ("buffer.min_rows", 20_000, "Hessel et al. 2018: 80,000 frames"),
        ("buffer.samples_per_insert", 8, "Hessel et al. 2018: 32 rows for each 4 steps"),
        ("buffer.prioritized", True, "Hessel et al. 2018"),
        ("buffer.priority_exponent", 0.5, "Hessel et al. 2018"),
        ("buffer.importance_exponent", 0.4, "Hessel et al. 2018"),
    ],
    "r2d2": [
        ("learner.batch_size", 64, "Kapturowski et al. 2019"),
        ("learner.learning_rate", 1e-4, "Kapturowski et al. 2019"),
        ("learner.max_grad_norm", 40, "Kapturowski et al. 2019"),
        ("policy.discount", 0.997, "Kapturowski et al. 2019"),
        ("policy.target_update_iters", 2_500, "Kapturowski et al. 2019"),
        ("buffer.capacity", 100_000, "Kapturowski et al. 2019: 4 million steps, of which a sequence adds 40"),
        ("buffer.priority_exponent", 0.9, "Kapturowski et al. 2019"),
        ("buffer.importance_exponent", 0.6, "Kapturowski et al. 2019"),
    ],
    "ppo": [
        ("learner.learning_rate", 3e-4, "Schulman et al. 2017"),
        ("learner.optimizer_settings", {"eps": 1e-5}, "OpenAI baselines"),
        ("learner.max_grad_norm", 0.5, "OpenAI baselines"),
        ("policy.epochs", 10, "Schulman et al. 2017"),
        ("policy.clip", 0.2, "Schulman et al. 2017"),
        ("policy.gae_lambda", 0.95, "Schulman et al. 2017"),
        ("policy.discount", 0.99, "Schulman et al. 2017"),
        ("policy.value_coefficient", 0.5, "OpenAI baselines"),
        ("buffer.max_policy_lag", 0, "Schulman et al. 2017"),
    ],
    "pqn": [
        ("learner.learning_rate", 2.5e-4, "Gallici et al. 2025"),
        ("learner.optimizer_settings", {"eps": 1e-5}, "Gallici et al. 2025"),
        ("learner.max_grad_norm", 10, "Gallici et al. 2025"),
        ("learner.segments_per_update", 32, "a quarter of Gallici et al. 2025"),
        ("policy.horizon_steps", 32, "Gallici et al. 2025"),
        ("policy.q_lambda", 0.65, "Gallici et al. 2025"),
        ("policy.epochs", 2, "Gallici et al. 2025"),
        ("policy.discount", 0.99, "Gallici et al. 2025"),
    ],
    "impala": [
        ("policy.horizon_steps", 20, "Espeholt et al. 2018"),
        ("policy.discount", 0.99, "Espeholt et al. 2018"),
        ("policy.entropy_coefficient", 0.01, "Espeholt et al. 2018"),
        ("policy.value_coefficient", 0.5, "Espeholt et al. 2018"),
        ("learner.learning_rate", 5e-4, "examples/pong_impala.yaml"),
        ("learner.optimizer_settings", {"eps": 1e-5}, "OpenAI baselines, for PPO"),
        ("learner.max_grad_norm", 0.5, "examples/pong_impala.yaml"),
        ("buffer.max_policy_lag", 4, "examples/pong_impala.yaml"),
    ],
    "sac": [
        ("learner.batch_size", 256, "Haarnoja et al. 2018"),
        ("learner.learning_rate", 3e-4, "Haarnoja et al. 2018"),
        ("learner.max_grad_norm", None, "Haarnoja et al. 2018"),
        ("policy.hidden", [256, 256], "Haarnoja et al. 2018"),
        ("policy.discount", 0.99, "Haarnoja et al. 2018"),
        ("policy.target_share", 0.005, "Haarnoja et al. 2018"),
        ("buffer.capacity", 1_000_000, "Haarnoja et al. 2018"),
        ("buffer.min_rows", 10_000, "softlearning: ten episodes of MuJoCo"),
        ("buffer.prioritized", False, "Haarnoja et al. 2018"),
        ("buffer.samples_per_insert", 256, "Haarnoja et al. 2018: one update for each step"),
    ],
    "td3": [
        ("learner.batch_size", 256, "the authors' code"),
        ("learner.learning_rate", 3e-4, "the authors' code"),
        ("learner.max_grad_norm", None, "Fujimoto et al. 2018"),
        ("policy.discount", 0.99, "Fujimoto et al. 2018"),
        ("policy.target_share", 0.005, "Fujimoto et al. 2018"),
        ("policy.policy_delay", 2, "Fujimoto et al. 2018"),
        ("buffer.capacity", 1_000_000, "the authors' code"),
        ("buffer.min_rows", 10_000, "Fujimoto et al. 2018"),
        ("buffer.prioritized", False, "Fujimoto et al. 2018"),
        ("buffer.samples_per_insert", 256, "Fujimoto et al. 2018: one update for each step"),
    ],
    "muzero": [
        ("learner.batch_size", 256, "Ye et al. 2021"),
        ("learner.learning_rate", 3e-3, "LightZero, for Adam"),
        ("learner.optimizer_settings", {"weight_decay": 1e-4}, "Ye et al. 2021"),
        ("learner.max_grad_norm", 10, "LightZero"),
        ("policy.discount", 0.997, "Schrittwieser et al. 2020"),
        ("policy.unroll_steps", 5, "Schrittwieser et al. 2020"),
        ("buffer.min_rows", 2_000, "Ye et al. 2021"),
        ("buffer.samples_per_insert", 64, "LightZero: one update for each four steps"),
        ("buffer.prioritized", True, "Ye et al. 2021"),
        ("buffer.priority_exponent", 0.6, "Ye et al. 2021"),
        ("buffer.importance_exponent", 0.4, "Ye et al. 2021"),
    ],
}
"""By algorithm: setting, value, and whose it is."""


@pytest.mark.parametrize(
    ("kind", "key", "value"), [(kind, key, value) for kind, rows in AUTHORS.items() for key, value, _ in rows]
)
def test_a_minimal_config_has_the_values_of_the_authors(kind: str, key: str, value: object) -> None:
    section, name = key.split(".")
    assert config(policy={"type": kind}).model_dump(mode="json")[section][name] == value


def test_the_table_has_every_default_that_is_about_learning() -> None:
    assert set(AUTHORS) == set(BUILT_IN)
    of_machines = {"env.num_envs", "collector.count", "collector.chunk_env_steps"}
    of_machines |= {"learner.publish_interval_iters", "learner.prefetch_batches"}
    for kind, one in BUILT_IN.items():
        assert one.settings.defaults.keys() - of_machines <= {key for key, _, _ in AUTHORS[kind]}


def test_built_in_defaults_are_settings_and_none_repeats_the_schema() -> None:
    plain = config().model_copy()
    sections = {name: type(inside) for name, inside in plain if isinstance(inside, Section)}
    for kind in (one.settings for one in BUILT_IN.values()):
        assert wrong_default(kind, sections) is None
        for key, value in kind.defaults.items():
            section, name = key.split(".")
            assert value != sections[section].model_fields[name].get_default(), f"{kind.__name__}: {key}"


def test_a_minimal_sac_is_the_stored_example() -> None:
    example = load_config(EXAMPLES / "half_cheetah_sac.yaml").config
    of_the_example = {"name", "env", "evaluator", "source_dir"}
    minimal = config(policy={"type": "sac"}, env={"id": "HalfCheetah-v5"})
    assert minimal.model_dump(exclude=of_the_example) == example.model_dump(exclude=of_the_example)
    assert minimal.env == example.env


def test_the_file_beats_the_algorithm_and_the_command_line_beats_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nenv: {id: x}\npolicy: {type: sac}\nlearner: {batch_size: 64, max_grad_norm: 10}\n")
    loaded = load_config(path, overrides=["buffer.prioritized=true", "learner.max_grad_norm=1"])
    learner, buffer = loaded.config.learner, loaded.config.buffer
    assert (learner.batch_size, learner.max_grad_norm, buffer.prioritized) == (64, 1.0, True)
    found = {key: source["source"] for key, source in sources(loaded).items()}
    assert found["learner.batch_size"] == "file"
    assert found["learner.max_grad_norm"] == found["buffer.prioritized"] == "command line"
    assert found["learner.learning_rate"] == found["env.num_envs"] == "algorithm"
    assert found["learner.device"] == found["policy.discount"] == "default"


def test_a_config_that_is_whole_does_not_change() -> None:
    """As that of a run folder from a version with other defaults."""
    whole = config(policy={"type": "sac"}, learner={"max_grad_norm": 10}).model_dump(mode="json")
    whole["learner"] |= {"batch_size": 64, "learning_rate": 1e-3, "publish_interval_iters": 10}
    assert config(**whole).model_dump(mode="json") == whole


def test_a_whole_section_on_the_command_line_leaves_the_rest_to_the_algorithm() -> None:
    settings = {"name": "a", "env": {"id": "x"}, "policy": {"type": "td3"}}
    loaded = load_settings(settings, overrides=[parse_override("learner={batch_size: 8}")], folder=Path())
    assert (loaded.config.learner.batch_size, loaded.config.learner.max_grad_norm) == (8, None)
    assert loaded.provenance["learner.max_grad_norm"] == "algorithm"


def test_several_policies_have_the_defaults_of_their_own_algorithms() -> None:
    env = {"kind": "pettingzoo", "id": "pettingzoo.butterfly.cooperative_pong_v6"}
    two = {"hunter": {"agents": ["a"], "policy": {"type": "sac"}}, "hunted": {"agents": ["b"]}}
    both = config(env=env, policy={"type": "ppo"}, learner={"learning_rate": 0.5}, policies=two)
    hunter, hunted = both.policies["hunter"], both.policies["hunted"]
    assert (hunter.learner.max_grad_norm, hunter.buffer.prioritized) == (None, False)
    assert hunted.learner.max_grad_norm == 0.5
    assert hunter.learner.learning_rate == hunted.learner.learning_rate == 0.5, "given for all"
    assert both.env.num_envs == 8, "shared sections have those of the whole config's algorithm"


@pytest.mark.parametrize(
    ("learner", "settings"),
    [
        ({}, {"eps": 1e-5}),
        ({"optimizer": "adam"}, {"eps": 1e-5}),
        ({"optimizer_settings": {"betas": [0.8, 0.9]}}, {"betas": [0.8, 0.9]}),
        ({"optimizer": "rmsprop"}, {}),
        ({"optimizer": "torch.optim:SGD"}, {}),
    ],
)
def test_settings_of_the_algorithms_optimizer_are_for_no_other(
    learner: dict[str, object], settings: dict[str, object]
) -> None:
    assert config(policy={"type": "ppo"}, learner=learner).learner.optimizer_settings == settings


@pytest.mark.parametrize(
    ("settings", "lag"),
    [
        ({}, 0),
        (DQN, 0),
        (PPO, 0),
        (IMPALA, 4),
        ({**IMPALA, "buffer": {"quota_bytes": 1_000_000}}, 4),
        ({**IMPALA, "buffer": {"max_policy_lag": 0}}, 0),
        ({**IMPALA, "buffer": {"max_policy_lag": None}}, None),
        ({**PPO, "buffer": {"max_policy_lag": 2}}, 2),
    ],
)
def test_collectors_of_impala_go_on_while_the_learner_learns(settings: dict[str, Any], lag: int | None) -> None:
    assert config(**settings).buffer.max_policy_lag == lag


def test_it_is_set_on_the_command_line_and_comes_back_from_a_stored_config(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\nenv: {id: CartPole-v1}\n")
    strict = load_config(path, overrides=["policy.type=impala", "buffer.max_policy_lag=0"]).config
    assert strict.buffer.max_policy_lag == 0
    for each in (strict, load_config(path, overrides=["policy.type=impala"]).config):
        assert ExperimentConfig.model_validate_json(each.model_dump_json()) == each


@pytest.mark.parametrize(
    ("above", "own", "lags"),
    [
        ({}, {}, {"hunter": 4, "hunted": 0}),
        (IMPALA, {}, {"hunter": 4, "hunted": 0}),
        ({"buffer": {"max_policy_lag": 1}}, {}, {"hunter": 1, "hunted": 1}),
        ({}, {"buffer": {"max_policy_lag": 2}}, {"hunter": 2, "hunted": 0}),
    ],
)
def test_each_of_several_policies_has_its_own(above: Any, own: Any, lags: dict[str, int]) -> None:
    as_long = {"policy": {"type": "ppo", "horizon_steps": 20}}
    two = {"hunter": {"agents": ["a"], **IMPALA, **own}, "hunted": {"agents": ["b"], **as_long}}
    env = {"kind": "pettingzoo", "id": "pettingzoo.butterfly.cooperative_pong_v6"}
    settings = {"policy": {"type": "dqn"}, **above, "env": env, "policies": two}
    policies = config(**settings)
    assert {name: one.buffer.max_policy_lag for name, one in policies.policies.items()} == lags
    assert {name: policies.of_policy(name).buffer.max_policy_lag for name in lags} == lags


@pytest.mark.parametrize("wrong", [{"policy": 3}, {"policy": {"type": "impala"}, "buffer": 3}, {"policies": {"a": 3}}])
def test_nonsense_is_left_to_the_validation(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="should be a mapping of settings, not 3"):
        config(**wrong)
