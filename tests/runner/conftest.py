"""One short serial run that many tests look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from remuda.config.schema import ExperimentConfig
from remuda.runner.serial import RunResult, Start
from remuda.storage.run_folder import RunFolder
from remuda.tests.runner.runs import Ticking, forget_steps, run_tiny, steps_really_taken, tiny_config


@dataclass(frozen=True)
class Finished:
    config: ExperimentConfig
    result: RunResult
    folder: RunFolder
    steps_taken: int


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    user = tmp_path_factory.mktemp("user")
    config = tiny_config(user)
    forget_steps()
    clock = Ticking()
    result = run_tiny(config, Start(tmp_path_factory.mktemp("runs") / "tiny"), clock=clock)
    return Finished(config, result, RunFolder(result.run_dir), steps_really_taken())


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    tiny_config(folder)
    return folder


@pytest.fixture(autouse=True)
def outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run asks git about the repository that it is started in: of this checkout's, that takes a tenth of a run."""
    monkeypatch.chdir(tmp_path)
