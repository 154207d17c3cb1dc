"""An algorithm is one entry, and no other code names an algorithm."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import pytest
from gymnasium import spaces

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.algorithms.base import Actions
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.algorithms.registry import BUILT_IN, CustomConfig, PolicyConfig
from remuda.config.declaration import Declaration, RowShape, Segments, Sequences, Steps, Unrolls
from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import StopConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.policy.algorithms import UnknownAlgorithmError, declaration, make_algorithm, make_policy
from remuda.policy.row_plan import UnsupportedReuseError, row_plan
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.test_house import ROOT, product_files

SEQUENCES = Sequences(burn_in_steps=1, sequence_steps=4, overlap_steps=2, n_step=1, discount=0.9)


def experiment(policy: PolicyConfig) -> ExperimentConfig:
    return ExperimentConfig(name="entry", env=EnvConfig(id="CartPole-v1"), policy=policy)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize(
    ("kind", "space"),
    [
        ("Discrete", spaces.Discrete(3)),
        ("MultiDiscrete", spaces.MultiDiscrete([3, 2])),
        ("Box", spaces.Box(-1, 1, (2,))),
    ],
)
def test_an_algorithm_acts_in_its_spaces_alone(name: str, kind: Actions, space: gymnasium.Space[Any]) -> None:
    config = ExperimentConfig.model_validate({"name": "x", "env": {"id": "CartPole-v1"}, "policy": {"type": name}})
    observation, action = ObservationSpec.of(spaces.Box(-1, 1, (4,))), ActionSpec.of(space)
    if kind in BUILT_IN[name].settings.acts_in:
        make_policy(config, observation, action)
    else:
        with pytest.raises(UnsupportedSpaceError):
            make_policy(config, observation, action)


def test_rows_and_reuse_are_said_by_the_entry() -> None:
    dqn, ppo = experiment(DqnConfig(n_step=5, discount=0.9)), experiment(PpoConfig(horizon_steps=17, discount=0.8))
    assert (declaration(dqn).rows, declaration(dqn).reuse) == (Steps(n_step=5, discount=0.9), "replay")
    assert (declaration(ppo).rows, declaration(ppo).reuse) == (Segments(horizon_steps=17, discount=0.8), "once")
    assert (row_plan(dqn).on_policy, row_plan(ppo).on_policy, row_plan(ppo).slots_per_row) == (False, True, 17)


def custom(rows: RowShape, reuse: Literal["replay", "once"]) -> ExperimentConfig:
    declared = Declaration(rows=rows, reuse=reuse, monitored=("loss",))
    return experiment(CustomConfig(type="mine:Mine", declaration=declared))


def test_unrolls_are_replayed_as_steps_are() -> None:
    steps = custom(Steps(n_step=1, discount=0.9), "replay")
    unrolls = custom(Unrolls(unroll_steps=5, n_step=10, discount=0.9), "replay")
    assert unrolls.policy.segment_steps is None
    for collectors in (None, 1):
        plans = [row_plan(config, collectors=collectors) for config in (unrolls, steps)]
        held_back = [plan.rows_held_back for plan in plans]
        assert held_back == [8 * 15, 8 * 1], "windows of eight environments"
        assert replace(plans[0], rows_held_back=8) == plans[1]


@pytest.mark.parametrize(
    ("rows", "reuse"),
    [
        (Steps(n_step=1, discount=0.9), "once"),
        (Unrolls(unroll_steps=1, n_step=1, discount=0.9), "once"),
        (SEQUENCES, "once"),
        (Segments(horizon_steps=1, discount=0.9), "replay"),
    ],
)
def test_rows_that_cannot_be_reused_are_an_error(rows: RowShape, reuse: Literal["replay", "once"]) -> None:
    """Without the error they would be read as other rows."""
    said = f"policy.type mine:Mine: {type(rows).__name__} with reuse '{reuse}'; there are Steps, Unrolls and "
    said += "Sequences with reuse"
    with pytest.raises(UnsupportedReuseError, match=re.escape(said)):
        row_plan(custom(rows, reuse))


def test_a_custom_algorithm_without_its_declaration_is_an_error_that_says_what_fills_it_in() -> None:
    """A coordinator does not import the class, and needs the declaration."""
    with pytest.raises(UnknownAlgorithmError, match=r"comes without its policy\.declaration: load the config with"):
        declaration(experiment(CustomConfig(type="mine:Mine")))


MINE = """
import remuda

class Settings(remuda.AlgorithmConfig):
    pass

class Mine(remuda.AlgorithmEntry):
    settings = Settings

    def declaration(self, config, settings):
        rows = remuda.Steps(n_step=1, discount=0.9)
        return remuda.Declaration(rows=rows, reuse="replay", monitored=("loss",))

    def make_policy(self, setup, *, chosen=None, device="cpu"):
        setup.observation  # without a return

    def make_algorithm(self, setup, seed):
        return self
"""


def test_a_method_of_the_users_own_that_returns_another_thing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_entry.py").write_text(MINE)
    config = experiment(CustomConfig(type="my_entry:Mine")).model_copy(update={"source_dir": str(tmp_path)})
    spaces_ = ObservationSpec.of(spaces.Box(-1, 1, (4,))), ActionSpec.of(spaces.Discrete(2))
    with pytest.raises(UnknownAlgorithmError, match=r"Mine\.make_policy should return a remuda\.Policy, not None"):
        make_policy(config, *spaces_)
    with pytest.raises(UnknownAlgorithmError, match=r"make_algorithm should return a remuda\.Algorithm, not <my_"):
        make_algorithm(config, *spaces_, 0)


def test_nobody_outside_the_algorithms_asks_which_one_it_is() -> None:
    asks = re.compile(r"isinstance\([^)]*\.policy\b|policy\.type\s*[!=]=")
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in product_files()
        if not path.is_relative_to(ROOT / "policy" / "algorithms")
        for line in path.read_text(encoding="utf-8").splitlines()
        if asks.search(line)
    ]
    assert wrong == []


# --- schedules
def an_experiment(policy: PolicyConfig, learner: LearnerConfig | None = None) -> ExperimentConfig:
    env = EnvConfig(id="CartPole-v1")
    return ExperimentConfig(name="schedules", env=env, policy=policy, learner=learner or LearnerConfig())


@pytest.mark.parametrize(
    ("asked", "max_env_steps", "decay"),
    [(None, 1, 1), (None, 250_000, 50_000), (None, 10**8, 1_000_000), (300, 250_000, 300)],
)
def test_exploration_lasts_a_share_of_the_run_unless_told(asked: int | None, max_env_steps: int, decay: int) -> None:
    policy, stop = DqnConfig(epsilon_decay_env_steps=asked), StopConfig(max_env_steps=max_env_steps)
    config = an_experiment(policy).model_copy(update={"stop": stop})
    assert declaration(config).exploration_at(decay) == {"epsilon": policy.epsilon_end}
    assert declaration(config).exploration_at(decay - 1)["epsilon"] > policy.epsilon_end


def test_a_run_that_learns_nothing_explores_as_little_as_it_ever_would() -> None:
    config = an_experiment(DqnConfig(epsilon_end=0.1), LearnerConfig(inference=True))
    assert declaration(config).exploration_at(0) == {"epsilon": 0.1}
