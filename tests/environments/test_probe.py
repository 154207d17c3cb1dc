"""Checks of an environment: what its observations, rewards, seeds and limits are beside its spaces."""

from __future__ import annotations

import random
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from remuda.config.environment import EnvConfig
from remuda.environments.probe import FIRST, Remarks, misfits, probe
from remuda.environments.replaceable import ReplaceableEnv
from remuda.tests.cli.terminal import Terminal
from remuda.tests.environments.stepping import copies_of, stepped

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Walk(gymnasium.Env[Any, Any]):
    """Ends after five steps; what it returns, and how it draws chance, is asked for."""

    def __init__(
        self, seen: Any = None, reward: float = 1.0, *, own_chance: bool = True, ends: bool = True, raises: bool = False
    ) -> None:
        self.observation_space, self.action_space = BOX, spaces.Discrete(3)
        self._seen, self._reward, self._own, self._ends, self._raises = seen, reward, own_chance, ends, raises

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._time += 1
        if self._raises:
            raise RuntimeError("lost a frame")
        drawn = self.np_random.random() if self._own else random.random()
        seen = np.full(2, drawn, np.float32) if self._seen is None else self._seen
        return seen, self._reward, self._ends and self._time == 5, False, {"action_mask": np.array([1, 0, 1], np.int8)}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


@pytest.fixture
def walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "walks.py").write_text(
        "import numpy as np\nfrom remuda.tests.environments.test_probe import Walk\n"
        "def good(): return Walk()\n"
        "def high(at=3.0): return Walk(np.array([0.0, at], np.float32))\n"
        "def double(): return Walk(np.zeros(2))\n"
        "def endless(): return Walk(ends=False)\n"
        "def unseeded(): return Walk(own_chance=False)\n"
        "def breaks(): return Walk(raises=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "walks", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("space", "value", "said"),
    [
        (
            BOX,
            np.array([0.0, 1.5], np.float32),
            r"^it\[1\] is 1\.5, above the bound 1 of its Box: widen the Box, or clip",
        ),
        (BOX, np.zeros(2), "^it is float64, and its Box is float32: return it as np.float32"),
        (BOX, np.zeros(3, np.float32), r"^it has shape \(3,\), and its Box \(2,\)"),
        (BOX, np.array([0.0, np.nan], np.float32), r"^it has entries that are not finite: \[1\] is nan"),
        (spaces.Discrete(3), 3, r"^it is 3, which is not in its space Discrete\(3\)"),
        (spaces.Dict({"a": BOX}), {"b": 0}, r"^it has the parts \['b'\], and its space \['a'\]"),
        (spaces.Dict({"a": BOX}), {"a": np.ones(2, np.float32) * 4}, r"^it\['a'\]\[0\] is 4, above the bound 1"),
        (spaces.Tuple((BOX, spaces.Discrete(2))), (np.zeros(2, np.float32), 5), r"^it\['1'\] is 5, which is not in"),
    ],
)
def test_a_value_outside_its_space_is_named_with_the_way_out(space: Any, value: Any, said: str) -> None:
    [(_, text)] = misfits(space, value, "it")
    assert re.search(said, text), text


def levels(make: str) -> dict[str, str]:
    found = probe(EnvConfig(make=make), source_dir=None, steps=30, clock=iter([0.0, 2.0]).__next__)
    return {one.text: one.level for one in found}


def test_a_good_environment_has_nothing_wrong(walks: Path) -> None:
    found = levels("walks:good")
    assert set(found.values()) <= {"ok"}
    assert "6 episodes ended, the longest after 5 steps" in found
    assert "speed: 15 steps/s in one process, random actions" in found


@pytest.mark.parametrize(
    ("make", "level", "said"),
    [
        ("walks:high", "wrong", "the observation[1] is 3, above"),
        ("walks:endless", "warning", "no episode ended in 30 steps, and there is no time limit"),
        ("walks:unseeded", "warning", "the same seed does not give the same episode"),
        ("walks:breaks", "wrong", "it raised RuntimeError: lost a frame in step 1 of episode 1"),
    ],
)
def test_what_is_wrong_is_said(walks: Path, make: str, level: str, said: str) -> None:
    assert [found for text, found in levels(make).items() if text.startswith(said)] == [level]


def test_the_first_observations_of_a_run_are_looked_at_and_each_kind_is_said_once(walks: Path) -> None:
    said, broke = list[str](), list[str]()
    with closing(
        copies_of(
            EnvConfig(make="walks:high", vectorization="sync"),
            num_envs=3,
            source_dir=None,
            broke=broke.append,
            remark=said.append,
        )
    ) as vector:
        vector.reset([1, 2, 3])
        for _ in range(5):
            stepped(vector, np.zeros(3, np.int64))
    assert said == [
        "walks:high: the observation[1] is 3, above the bound 1 of its Box: widen the Box, or clip the observation"
    ]
    assert broke == []


def test_after_its_first_observations_an_environment_is_not_looked_at(walks: Path) -> None:
    said = list[str]()
    late = Walk()
    env = ReplaceableEnv(lambda: late, index=0, name="late", broke=print, remarks=Remarks("late", said.append))
    env.reset(seed=0)
    for _ in range(FIRST - 1):
        env.step(0)
    late._seen = np.full(2, 3.0, np.float32)
    env.step(0)
    assert said == []


def test_the_command_says_what_is_wrong_by_its_exit_code(walks: Path, terminal: Terminal) -> None:
    ended = terminal.remuda("env", "check", "walks:high", "--kwargs", '{"at": 7}', "--steps", "20")
    assert ended.code == 1
    assert ended.out.startswith("wrong   the observation[1] is 7, above the bound 1 of its Box")
    assert terminal.remuda("env", "check", "walks:good", "--steps", "20").code == 0
    for words, said in (
        (("CartPole-v9",), "did you mean CartPole-v1?"),
        (("walks:good", "--kwargs", "8"), "JSON object"),
    ):
        ended = terminal.remuda("env", "check", *words)
        assert (ended.code, said in ended.err) == (2, True)
