"""What environments report of an episode is the same however they are stepped, and never anything but numbers."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.config.environment import EnvConfig
from remuda.environments.lanes import Copies, as_columns, of_single, of_vector
from remuda.tests.environments.stepping import begun, copies_of, stepped

NAMES = ("boxes", "won", "note", "missing")

MODULE = """
    from remuda.tests.environments.scripted import ScriptedEnv

    class Env(ScriptedEnv):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            if terminated or truncated:
                info = {"boxes": 10 * self.episode + self.step_number, "won": terminated, "note": "bye"}
            else:
                info = {"boxes": -1}
            return observation, reward, terminated, truncated, info

    def make_env():
        return Env(longest=5)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", [*sys.path])  # users' folders are put in front
    (tmp_path / "reporting_env.py").write_text(textwrap.dedent(MODULE))
    yield tmp_path
    sys.modules.pop("reporting_env", None)


def test_a_step_of_a_vector() -> None:
    info = {
        "boxes": np.array([3, 0, 7]), "_boxes": np.array([True, False, True]),
        "won": np.array([True, True, False]), "_won": np.array([True, True, True]),
        "note": np.array(["a", None, "b"], object), "_note": np.array([True, False, True]),
    }  # fmt: skip
    over = np.array([True, True, False])
    assert of_vector(info, NAMES, over) == {"boxes": [3.0], "won": [1.0, 1.0], "note": [], "missing": []}


@pytest.mark.parametrize("value", [np.zeros((3, 2)), [1.0, 2.0, 3.0], "text", {"r": np.zeros(3)}, np.array(3.0)])
def test_what_is_no_number_per_environment_is_left_out(value: Any) -> None:
    assert of_vector({"a": value}, ("a",), np.ones(3, bool)) == {"a": []}
    assert np.isnan(as_columns({"a": value}, ("a",), 3)).all()


def test_one_environments_last_step() -> None:
    info: dict[str, object] = {
        "a": 1, "b": np.float32(0.5), "c": np.array(2.0), "d": True, "e": "x", "f": math.nan, "g": np.zeros(2),
    }  # fmt: skip
    assert of_single(info, "abcdefgh") == {"a": 1.0, "b": 0.5, "c": 2.0, "d": 1.0}


def reports(vector: Copies, steps: int) -> list[dict[str, list[float]]]:
    begun(vector, [1, 2, 3, 4, 5])
    found: list[dict[str, list[float]]] = []
    for _ in range(steps):
        _, _, terminated, truncated, _ = stepped(vector, np.zeros(5, int))
        found.append(vector.lanes[0].reported(NAMES, terminated | truncated))
    return found


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_objects_and_processes_report_alike(folder: Path) -> None:
    found: list[list[dict[str, list[float]]]] = []
    for how in ("sync", "async"):
        config = EnvConfig.model_validate(
            {"make": "reporting_env:make_env", "vectorization": how, "episode_info": NAMES}
        )
        vector = copies_of(config, num_envs=5, source_dir=str(folder))
        try:
            found.append(reports(vector, 30))
        finally:
            vector.close()
    assert found[0] == found[1]
    boxes = [value for step in found[0] for value in step["boxes"]]
    assert len(boxes) > 20
    assert all(value > 10 for value in boxes), "nothing but last steps"
    assert {value for step in found[0] for value in step["won"]} == {0.0, 1.0}
    assert not any(step["note"] or step["missing"] for step in found[0])


@pytest.mark.parametrize(
    "names", [["reward"], ["boxes", "Boxes"], ["won", "test_won"], ["ep_len"], ["discounted_return"], ["a b"], [""]]
)
def test_names_that_would_be_columns_twice_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"given twice, or is the name of a column|should match pattern"):
        EnvConfig.model_validate({"id": "CartPole-v1", "episode_info": names})
