"""vars.pkl is opened only with trust_code=True and an environment that cannot be built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import gymnasium
import pytest

from remuda.environments.errors import EnvironmentBuildError
from remuda.policy.files.functions import Which, load_action, load_policy, load_value
from remuda.storage.env_files import pickle_environment
from remuda.tests.poison import Poison
from remuda.tests.policy.files.saved_runs import export_without_environment, lose_environment, save_three

POLICIES: list[Which] = ["last", "model"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with an environment that can be built."""
    save_three(tmp_path)
    return tmp_path


@pytest.mark.parametrize("trusting", [False, True])
@pytest.mark.parametrize("which", POLICIES)
def test_it_is_left_alone_where_the_environment_can_be_built(run: Path, which: Which, trusting: bool) -> None:
    poison = Poison.as_environment(run)
    env, _ = load_policy(run, which, trust_code=trusting)
    assert env.spec is not None
    assert env.spec.id == "CartPole-v1"
    assert not poison.worked


@pytest.mark.parametrize("which", POLICIES)
def test_it_is_left_alone_unasked(run: Path, which: Which) -> None:
    lose_environment(run)
    poison = Poison.as_environment(run)
    with pytest.raises(EnvironmentBuildError, match=r"--trust-code \(in Python: trust_code=True\)"):
        load_policy(run, which)
    assert not poison.worked


@pytest.mark.parametrize("load", [load_action, load_value, partial(load_policy, env=gymnasium.make("CartPole-v1"))])
@pytest.mark.parametrize("which", POLICIES)
def test_who_needs_no_environment_leaves_it_alone(run: Path, which: Which, load: Callable[..., object]) -> None:
    lose_environment(run)
    poison = Poison.as_environment(run)
    assert load(run, which) is not None
    assert not poison.worked


@pytest.mark.parametrize("which", POLICIES)
def test_it_is_opened_where_a_script_says_so(run: Path, which: Which) -> None:
    lose_environment(run)
    poison = Poison.as_environment(run)
    with pytest.raises(EnvironmentBuildError, match="holds None, which is not a gymnasium"):
        load_policy(run, which, trust_code=True)
    assert poison.worked
    assert pickle_environment(run / "vars.pkl", gymnasium.make("CartPole-v1", max_episode_steps=7)) is None
    env, _ = load_policy(run, which, trust_code=True)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 7


def test_a_model_folder_that_was_copied_is_no_other(run: Path) -> None:
    export_without_environment(run / "model")
    poison = Poison.as_environment(run / "model")
    with pytest.raises(EnvironmentBuildError, match="cannot be built here"):
        load_policy(run / "model")
    assert not poison.worked
    with pytest.raises(EnvironmentBuildError, match="holds None"):
        load_policy(run / "model", trust_code=True)
    assert poison.worked
