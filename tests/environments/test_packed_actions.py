"""What is promised of actions with parts: the environment gets them as its space says, everything else one array."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from remuda.config.environment import EnvConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.lanes import Copies
from remuda.environments.make import make_single
from remuda.environments.wrappers import PackActions
from remuda.evaluator.play_policy import run_policy
from remuda.policy.files.functions import load_policy
from remuda.runner.serial import Start
from remuda.tests.environments.several_actions import COUNTS, Dials, NamedDials
from remuda.tests.environments.stepping import begun, copies_of, stepped
from remuda.tests.runner.runs import run_tiny, tiny_config, write_user_folder

MODULE = "remuda.tests.environments.several_actions"


class Nested(Dials):
    """Records what it is given."""

    action_space = spaces.Dict(
        {
            "a": spaces.Tuple(
                (spaces.MultiDiscrete(np.array([[3, 2]]), start=np.array([[5, 0]])), spaces.Discrete(2, start=7))
            ),
            "b": spaces.MultiBinary((2, 1)),
        }
    )

    def step(self, action: Any) -> Any:
        assert action in self.action_space
        self.given = action
        return np.zeros(9, np.float32), 0.0, False, False, {}


def test_one_array_becomes_what_the_space_says() -> None:
    inner = Nested()
    env = PackActions(inner)
    assert env.action_space == spaces.MultiDiscrete([3, 2, 2, 2, 2], start=[5, 0, 7, 0, 0])
    env.reset()
    env.step(np.array([6, 1, 8, 0, 1]))
    assert inner.given["a"][0].tolist() == [[6, 1]]
    assert inner.given["a"][1] == 8
    assert inner.given["b"].tolist() == [[0], [1]]
    for _ in range(20):
        env.step(env.action_space.sample())


@pytest.mark.parametrize(
    "mask",
    [
        {"first": [1, 1, 0], "others": (np.ones(4), None)},
        {"others": [[1, 1, 1, 1], [1, 1]], "first": np.array([1, 1, 0])},
        {"first": (1, 1, 0), "others": None},
        np.array([1, 1, 0, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_masks_come_in_the_order_of_the_space_however_they_are_nested(mask: Any) -> None:
    class Says(NamedDials):
        def _said(self) -> dict[str, Any]:
            return {"action_mask": mask, "other": 1}

    env = PackActions(Says())
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [True, True, False] + [True] * 6
    assert info["other"] == 1
    info = env.step(np.array([-1, 0, 0]))[-1]
    assert info["action_mask"].tolist() == [True, True, False] + [True] * 6


def test_a_part_that_is_not_counted_is_named() -> None:
    with pytest.raises(EnvironmentBuildError, match=r"the part 'force' of the action is Box.*supported in a Tuple"):
        make_single(EnvConfig(make=f"{MODULE}:Unpackable"), source_dir=None)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_vectors_take_arrays_and_give_masks(vectorization: str) -> None:
    env = EnvConfig.model_validate({"make": f"{MODULE}:NamedDials", "vectorization": vectorization})
    vector: Copies = copies_of(env, num_envs=2, source_dir=None, chosen=lambda said: None)
    try:
        vector.tell_legal_actions()
        observations = begun(vector, [3, 4])
        for _ in range(3):
            legal = vector.lanes[0].legal(COUNTS)
            assert legal is not None
            assert legal.tolist() == [[True, True, False] + [True] * 6] * 2
            shown = np.stack([part.argmax(1) for part in np.split(observations, [3, 7], axis=1)], axis=1)
            shown[:, 0] = np.minimum(shown[:, 0], 1)
            observations, rewards, *_ = stepped(vector, shown - np.array([1, 0, 0]))
            assert (rewards >= 2 / 3).all()
    finally:
        vector.close()


def test_a_run_learns_plays_and_leaves_a_policy_for_it(tmp_path: Path) -> None:
    """An illegal action is an error of this environment, in collectors, in evaluations and of the function."""
    settings: dict[str, Any] = {
        "env": {"make": f"{MODULE}:NamedDials", "num_envs": 3},
        "policy": {"type": "ppo", "hidden": [8], "horizon_steps": 8},
        "learner": {},
        "collector": {},
        "buffer": {},
        "stop": {"max_env_steps": 120},
        "log": {"histograms": True},
    }
    write_user_folder(tmp_path / "user", **settings)
    result = run_tiny(tiny_config(tmp_path / "user"), Start(tmp_path / "run"))
    assert not result.failed
    told = json.loads((tmp_path / "run" / "env_spec.json").read_text())["action_space"]
    assert told["nvec"] == [3, 4, 2]
    for which in ("last", "model"):
        env, get_action = load_policy(tmp_path / "run", which)
        assert len(run_policy(env, get_action, episodes=2, say=lambda text: None)) == 2
        seen, info = env.reset(seed=0)
        for deterministic in (True, False):
            action = get_action(seen, deterministic=deterministic, legal_actions=info["action_mask"])
            assert action in env.action_space
            assert isinstance(action, np.ndarray)
            assert action[0] != 1
