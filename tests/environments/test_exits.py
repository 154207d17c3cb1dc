"""An environment that asks the process to end is an error that names the place."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit, UserExitError
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import make_single

WALK = """
import gymnasium, numpy as np, sys
class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        sys.exit("no more")
def make():
    return Walk()
def make_exits():
    sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "walk_exits.py").write_text(WALK)
    (tmp_path / "gone_at_once.py").write_text("import sys\n\nsys.exit()\n")
    return tmp_path


def test_the_error_names_the_code_and_the_place() -> None:
    with (
        pytest.raises(UserExitError, match=rf"^SystemExit\(3\) was raised in {__file__}, line \d+, in test_the_"),
        NoExit(),
    ):
        sys.exit(3)


def test_a_keyboard_interrupt_may_be_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt), NoExit():
        raise KeyboardInterrupt
    former = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with pytest.raises(UserExitError, match="KeyboardInterrupt"), NoExit():
            raise KeyboardInterrupt
    finally:
        signal.signal(signal.SIGINT, former)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        ("gone_at_once:make", r"cannot be imported: .*SystemExit\(\) was raised in .*gone_at_once\.py, line 3"),
        ("walk_exits:make_exits", r"cannot be built: .*SystemExit\(3\) was raised in .*walk_exits\.py, line 13"),
    ],
)
def test_building_one_that_exits_is_a_build_error(folder: Path, make: str, said: str) -> None:
    with pytest.raises(EnvironmentBuildError, match=said):
        make_single(EnvConfig(make=make), source_dir=str(folder))
