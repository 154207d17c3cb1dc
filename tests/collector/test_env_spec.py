"""env_spec.json says how to rebuild the environment; vars.pkl is written where it can be."""

from __future__ import annotations

import json
import pickle  # noqa: TID251  (reads back what was written for users' tools)
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from remuda.collector.environments import environment_spec
from remuda.config.environment import EnvConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.environments.make import make_single
from remuda.environments.spaces import column_layout
from remuda.storage.env_files import pickle_environment
from remuda.tests.environments.stepping import copies_of


def test_the_spec_of_cartpole() -> None:
    config = EnvConfig(id="CartPole-v1", kwargs={"sutton_barto_reward": True}, num_envs=8)
    spec = environment_spec(config, copies_of(config, num_envs=4, source_dir=None))
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    observation = spec.pop("observation_space")
    assert isinstance(observation, dict)
    assert spec == {
        "id": "CartPole-v1",
        "make": None,
        "kwargs": {"sutton_barto_reward": True},
        "max_episode_steps": None,
        "num_envs": 4,
        "vectorization": "native",
        "autoreset": "NextStep",
        "action_space": {"text": "Discrete(2)", "type": "Discrete", "shape": [], "dtype": "int64", "n": 2, "start": 0},
        "gymnasium_version": gymnasium.__version__,
    }
    assert observation["type"] == "Box"
    assert observation["shape"] == [4]
    assert observation["dtype"] == "float32"
    assert observation["high"] == [pytest.approx(4.8), "inf", pytest.approx(0.41887903), "inf"]
    assert str(observation["text"]).startswith("Box(")


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (3, 2), np.float64), (3, 2), "float32"),
        (spaces.Box(0, 255, (4,), np.uint8), (4,), "uint8"),
        (spaces.Discrete(3), (), "int64"),
        (spaces.MultiDiscrete([2, 3]), (2,), "int64"),
        (spaces.MultiBinary(4), (4,), "int8"),
    ],
)
def test_columns_keep_integers_and_make_floats_float32(space: Any, shape: tuple[int, ...], dtype: str) -> None:
    assert column_layout(space, what="observation") == (shape, np.dtype(dtype))


def test_what_was_there_stays_where_it_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "vars.pkl"
    assert pickle_environment(path, 1) is None
    before = path.read_bytes()
    assert pickle_environment(path, lambda: None) is not None
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["vars.pkl"]


def test_a_picklable_environment_is_written_whole(tmp_path: Path) -> None:
    env = make_single(EnvConfig(id="CartPole-v1"), source_dir=None)
    assert pickle_environment(tmp_path / "vars.pkl", env) is None
    with (tmp_path / "vars.pkl").open("rb") as file:
        loaded = pickle.load(file)  # noqa: S301  (written by this test)
    assert list(loaded) == ["env"]
    first, _ = loaded["env"].reset(seed=3)
    np.testing.assert_array_equal(first, env.reset(seed=3)[0])
    assert [path.name for path in tmp_path.iterdir()] == ["vars.pkl"]


def test_a_space_without_a_number_has_no_column() -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"action space .* contains no number"):
        column_layout(spaces.Box(-1.0, 1.0, (0,)), what="action")
