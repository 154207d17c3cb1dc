"""An algorithm from the user's folder with a coordinator and worker processes: trained, played and resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from remuda.tests.parallel.conftest import Launcher

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ("--set", "buffer.min_rows=100", "--set", "evaluator.episodes=1", "--set", "collector.count=1")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's folder with the example in it."""
    folder = tmp_path / "user"
    folder.mkdir()
    for name in ("custom_algorithm.py", "custom_algorithm.yaml"):
        shutil.copy(EXAMPLES / name, folder / name)
    return folder


def test_it_is_trained_played_and_resumed(user: Path, tmp_path: Path, launched: Launcher) -> None:
    elsewhere, run = tmp_path, tmp_path / "run"
    launch = ("launch", user / "custom_algorithm.yaml", *SHORT, "--run-dir", run)
    first = launched(elsewhere, *launch, "--set", "stop.max_env_steps=600").ended()
    assert first.code == 0, first.err
    before = json.loads((run / "ckpt" / "index.json").read_text())["last"]
    again = launched(elsewhere, *launch, "--set", "stop.max_env_steps=1200", "--resume").ended()
    assert again.code == 0, again.err
    after = json.loads((run / "ckpt" / "index.json").read_text())["last"]
    assert after > before > 0
    played = launched(elsewhere, "evaluate", run, "-i", "-1", "-n", 2, "-nr", "--json").ended()
    assert played.code == 0, played.err
    assert json.loads(played.out)["episodes"] == 2
    settings = json.loads((run / "config.json").read_text())["policy"]
    assert settings["hidden"] == 128
    assert settings["declaration"]["exploration"] == {"temperature": [[0, 1.0], [10_000, 0.05]]}


def test_one_that_cannot_be_imported_starts_nothing(user: Path, tmp_path: Path, launched: Launcher) -> None:
    (user / "custom_algorithm.py").write_text("import nothing_of_that_name\n")
    ended = launched(tmp_path, "launch", user / "custom_algorithm.yaml", "--run-dir", tmp_path / "run").ended()
    assert ended.code == 2
    assert "custom_algorithm.yaml:6: policy.type = 'custom_algorithm:BoltzmannQ'" in ended.err
    assert "No module named 'nothing_of_that_name'" in ended.err
    assert not (tmp_path / "run").exists()
