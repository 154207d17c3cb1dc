"""Minigrid's environments without a wrapper: a Dict of an image, a direction and a text."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from remuda.config.load import load_settings
from remuda.environments.spaces import PackedSpace, unpacked
from remuda.policy.files.functions import load_policy
from remuda.runner.serial import RunResult, Start, run
from remuda.tests.runner.runs import Flag, Ticking

pytestmark = pytest.mark.skipif(find_spec("minigrid") is None, reason="minigrid comes with the extra `dev`")
EMPTY = "minigrid:MiniGrid-Empty-5x5-v0"
DOOR = "minigrid:MiniGrid-DoorKey-5x5-v0"


def trained(
    folder: Path,
    env_id: str,
    *,
    seed: int = 0,
    max_env_steps: int,
    stop_value: float | None,
    episodes: int = 5,
    epochs: int = 10,
) -> RunResult:
    """With the settings of docs/environments.md; `episodes` are those of an evaluation."""
    settings = {
        "name": "minigrid",
        "seed": seed,
        "env": {"id": env_id, "num_envs": 8, "vectorization": "sync"},
        "policy": {"type": "ppo", "horizon_steps": 64, "entropy_coefficient": 0.01, "epochs": epochs},
        "evaluator": {"interval_env_steps": 8_000, "episodes": episodes},
        "stop": {"max_env_steps": max_env_steps, "stop_value": stop_value},
    }
    result = run(load_settings(settings, folder=folder).config, Start(folder / "run"), stop=Flag(), clock=Ticking())
    assert not result.failed, result
    return result


def test_a_run_is_trained_and_its_policy_plays(tmp_path: Path) -> None:
    result = trained(tmp_path, DOOR, max_env_steps=512, stop_value=None, episodes=1, epochs=1)
    assert result.counters.train_iter > 0
    env, get_action = load_policy(result.run_dir)
    observation, _ = env.reset(seed=0)
    assert isinstance(env.observation_space, PackedSpace)
    parts = unpacked(env.observation_space, observation[None])
    assert parts["image"].shape == (1, 7, 7, 3)
    assert int(parts["direction"][0]) in range(4)
    assert "mission" not in parts, "no network reads a text"
    assert get_action(observation) in range(7)


@pytest.mark.learning
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(3))
def test_the_way_through_an_empty_room_is_learned(seed: int, tmp_path: Path) -> None:
    result = trained(tmp_path, EMPTY, seed=seed, max_env_steps=60_000, stop_value=0.9)
    assert result.reason == "stop_value", result


@pytest.mark.learning
@pytest.mark.timeout(3_600)
def test_a_key_is_found_for_the_door(tmp_path: Path) -> None:
    """An agent that cannot distinguish the door from a wall never passes it."""
    result = trained(tmp_path, DOOR, max_env_steps=400_000, stop_value=0.9)
    assert result.reason == "stop_value", result
