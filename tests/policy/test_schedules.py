"""Schedules are straight lines between their ends and constant beyond, without torch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.config.algorithms.registry import PolicyConfig
from remuda.config.environment import EnvConfig
from remuda.config.learning import BufferConfig, LearnerConfig
from remuda.config.schema import ExperimentConfig
from remuda.config.workers import StopConfig
from remuda.policy.algorithms import declaration
from remuda.policy.schedules import importance_beta, linear
from remuda.tests.imports import imported_by

fractions = st.floats(0, 1)
durations = st.integers(1, 10**9)


@pytest.mark.parametrize(("at", "expected"), [(0, 1.0), (250, 0.8), (500, 0.6), (1000, 0.2), (5000, 0.2)])
def test_linear_by_hand(at: int, expected: float) -> None:
    assert linear(1.0, 0.2, duration=1000, at=at) == pytest.approx(expected)


@given(start=fractions, end=fractions, duration=durations, at=st.integers(0, 2**53))
def test_linear_stays_between_its_ends_and_meets_them_exactly(start: float, end: float, duration: int, at: int) -> None:
    assert linear(start, end, duration=duration, at=0) == start
    assert linear(start, end, duration=duration, at=duration + at) == end
    slack = 1e-12  # rounding, not drift
    assert min(start, end) - slack <= linear(start, end, duration=duration, at=at) <= max(start, end) + slack


def an_experiment(policy: PolicyConfig, learner: LearnerConfig | None = None) -> ExperimentConfig:
    env = EnvConfig(id="CartPole-v1")
    return ExperimentConfig(name="schedules", env=env, policy=policy, learner=learner or LearnerConfig())


def test_epsilon_counts_environment_steps_not_updates() -> None:
    config = an_experiment(DqnConfig(epsilon_start=1.0, epsilon_end=0.1, epsilon_decay_env_steps=1000))
    assert declaration(config).exploration_at(0) == {"epsilon": 1.0}
    assert declaration(config).exploration_at(500)["epsilon"] == pytest.approx(0.55)
    assert declaration(config).exploration_at(10**6) == declaration(config).least_exploration == {"epsilon": 0.1}


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


def test_policies_that_are_distributions_have_no_schedule() -> None:
    config = an_experiment(PpoConfig())
    assert declaration(config).exploration_at(0) == declaration(config).least_exploration == {}


def test_beta_rises_to_one_over_updates() -> None:
    buffer = BufferConfig(importance_exponent=0.4, importance_anneal_iters=100)
    assert importance_beta(buffer, 0) == 0.4
    assert importance_beta(buffer, 50) == pytest.approx(0.7)
    assert importance_beta(buffer, 100) == importance_beta(buffer, 10**9) == 1.0


def test_what_the_coordinator_imports_brings_neither_torch_nor_gymnasium() -> None:
    modules = ("", ".schedules", ".files.policy_file", ".algorithms", ".entry")
    assert (
        imported_by("import " + ", ".join(f"remuda.policy{module}" for module in modules)) & {"torch", "gymnasium"}
        == set()
    )
