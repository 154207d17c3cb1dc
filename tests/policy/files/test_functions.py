"""Scripts get from a run folder its environment, a function that acts, and one that gives values."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from remuda.environments.errors import EnvironmentBuildError
from remuda.policy.algorithms.dqn.learning import Dqn
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.functions import Which, load_action, load_policy, load_value
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.tests.policy.files.exported import CASES, leave_behind
from remuda.tests.policy.files.saved_runs import lose_environment, save_three

OBSERVATIONS = np.random.default_rng(3).normal(size=(20, 4)).astype(np.float32)


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, list[Dqn]]:
    return tmp_path, save_three(tmp_path)


def best_actions(algorithm: Dqn) -> list[int]:
    with torch.no_grad():
        return [int(action) for action in algorithm.network(torch.tensor(OBSERVATIONS)).argmax(1)]


@pytest.mark.parametrize(("which", "index"), [(0, 0), (1, 1), ("best", 1), ("last", 2), ("model", 2)])
def test_each_policy_acts_as_its_network(run: tuple[Path, list[Dqn]], which: Which, index: int) -> None:
    folder, algorithms = run
    CheckpointIndex(folder / "ckpt").set_reward(1, 9.0, best=True)
    get_action = load_action(folder, which)
    assert [get_action(row) for row in OBSERVATIONS] == best_actions(algorithms[index])


def test_a_policy_comes_with_its_environment(run: tuple[Path, list[Dqn]]) -> None:
    env, get_action = load_policy(str(run[0]))
    observation, _ = env.reset(seed=1)
    for _ in range(5):
        action = get_action(observation)
        assert isinstance(action, int)
        observation, *_ = env.step(action)
    assert env.spec is not None
    assert (env.spec.id, env.render_mode) == ("CartPole-v1", None)
    env.close()


def test_the_environment_is_that_of_the_runs_config_which_may_have_been_mended(run: tuple[Path, list[Dqn]]) -> None:
    settings = json.loads((run[0] / "config.json").read_text())
    settings["env"]["max_episode_steps"] = 3
    (run[0] / "config.json").write_text(json.dumps(settings))
    for which in ("last", "model"):
        env, _ = load_policy(run[0], which)
        assert env.spec is not None
        assert env.spec.max_episode_steps == 3


def test_an_environment_of_ones_own_needs_none_to_be_built(run: tuple[Path, list[Dqn]]) -> None:
    mine = gymnasium.make("CartPole-v1", max_episode_steps=7)
    lose_environment(run[0])
    env, get_action = load_policy(run[0], env=mine)
    assert env is mine
    assert get_action(OBSERVATIONS[0]) == load_action(run[0])(OBSERVATIONS[0])
    with pytest.raises(EnvironmentBuildError, match=r"load_policy\(run, env=\.\.\.\); load_action"):
        load_policy(run[0])


@pytest.mark.parametrize(
    ("env", "said"),
    [("Pendulum-v1", r"observations are arrays of shape \(4,\), not arrays of shape \(3,\)"),
     ("Taxi-v4", "observations are arrays of shape .*, not 500 whole numbers")],
)  # fmt: skip
def test_an_environment_that_does_not_fit_is_refused(run: tuple[Path, list[Dqn]], env: str, said: str) -> None:
    with pytest.raises(EnvironmentBuildError, match=said):
        load_policy(run[0], env=gymnasium.make(env))


def test_a_model_folder_is_enough_wherever_it_was_taken(run: tuple[Path, list[Dqn]], tmp_path: Path) -> None:
    shutil.copytree(run[0] / "model", tmp_path / "elsewhere" / "walker")
    env, get_action = load_policy(tmp_path / "elsewhere" / "walker")
    assert [get_action(row) for row in OBSERVATIONS] == best_actions(run[1][2])
    assert env.observation_space.shape == (4,)


def test_actions_of_a_box_are_arrays_as_the_environment_takes_them(tmp_path: Path) -> None:
    case = CASES["ppo, continuous"]
    leave_behind(case, tmp_path)
    action = load_action(tmp_path / "model")(case.seen(np.random.default_rng(0), 1)[0])
    assert isinstance(action, np.ndarray)
    assert action.shape == (1, 2)
    assert action.dtype == np.float64


@pytest.mark.parametrize("which", [1, "model"])
def test_values_are_those_of_the_best_action(run: tuple[Path, list[Dqn]], which: Which) -> None:
    folder, algorithms = run
    value = load_value(str(folder), which)
    with torch.no_grad():
        algorithm = algorithms[2 if which == "model" else 1]
        expected = algorithm.network(torch.tensor(OBSERVATIONS)).amax(1).numpy()
    np.testing.assert_allclose([value(row) for row in OBSERVATIONS], expected, atol=1e-5)


def test_what_is_not_there_is_named(run: tuple[Path, list[Dqn]], tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(CheckpointIndexError, match="no checkpoint of iteration 7"):
        load_policy(run[0], 7)
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(CheckpointError, match="no checkpoint is listed"):
        load_policy(empty)
    with pytest.raises(CheckpointError, match="no such model"):
        load_policy(empty, "model")


@pytest.mark.parametrize(("which", "said"), [(1, "dqn acts without a search"), ("model", "model.pt acts without")])
def test_a_search_that_there_is_not_cannot_be_left_out(run: tuple[Path, list[Dqn]], which: Which, said: str) -> None:
    for load in (load_policy, load_action):
        with pytest.raises(CheckpointError, match=said):
            load(run[0], which, search=False)
