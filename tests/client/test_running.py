"""`train` and `launch` from Python: the same runs as the verbs make, with the same folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.client.running import launch, train
from remuda.config.errors import ConfigError
from remuda.config.load import load_config
from remuda.storage.existing_folder import RunFolderError
from remuda.tests.parallel.user_folder import UserFolder
from remuda.tests.runner.runs import Flag, write_user_folder
from remuda.wire.messages import ExperimentStatus

AUTO = ("collector.count=auto", "env.num_envs=2")
SHORT = ("stop.max_env_steps=60", "env.num_envs=1")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_user_folder(tmp_path / "user")


def test_train_a_file_with_overrides_in_the_folder_of_its_name(config: Path, tmp_path: Path) -> None:
    seen: list[ExperimentStatus] = []
    result = train(config, overrides=SHORT, on_progress=seen.append)
    assert (result.reason, result.failed, result.counters.env_step) == ("max_env_steps", False, 60)
    assert result.run_dir == tmp_path / "runs" / "tiny"
    assert seen[-1].state == "finished"
    text = (result.run_dir / "formatted_total_config.py").read_text()
    assert "'max_env_steps': 60,  # command line" in text
    assert "'batch_size': 8,  # file" in text


def test_train_a_config_that_is_there_already(config: Path, tmp_path: Path) -> None:
    loaded = load_config(config, overrides=SHORT)
    first = train(loaded.config, run_dir=tmp_path / "first")
    second = train(loaded, run_dir="second")
    assert first.counters.train_iter == second.counters.train_iter
    stored = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("first", "second")]
    assert stored[0] == stored[1]
    with pytest.raises(ValueError, match="loaded already"):
        train(loaded, overrides=SHORT)


def test_train_refuses_continues_and_replaces_as_the_verb_does(config: Path) -> None:
    train(config, overrides=SHORT)
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(config, overrides=SHORT)
    resumed = train(config, overrides=["stop.max_env_steps=120", "env.num_envs=1"], on_exists="resume")
    assert resumed.counters.env_step == 120
    with pytest.raises(ConfigError, match="batch_size"):
        train(config, overrides=["learner.bath_size=1"], on_exists="force")


def test_train_ends_when_its_own_stop_says_so(config: Path) -> None:
    result = train(config, stop=Flag(looks=3))
    assert result.reason == "stopped"
    assert "the test says so" in result.explanation


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
def test_launch_a_herd_of_its_own(tmp_path: Path) -> None:
    user = UserFolder.make(tmp_path / "user", {"stop": {"max_env_steps": 1000}})
    seen: list[ExperimentStatus] = []
    said: list[str] = []
    status = launch(user.config, run_dir=tmp_path / "run", overrides=AUTO, on_progress=seen.append, say=said.append)
    assert (status.state, status.reason) == ("finished", "max_env_steps")
    assert status == seen[-1]
    assert status.run_dir == str(tmp_path / "run")
    config = (tmp_path / "run" / "formatted_total_config.py").read_text()
    assert "'num_envs': 2,  # command line" in config
    assert "  # measured" in config
    assert len(said) == 2
    assert said[0].startswith("auto: collector.count ")
    assert all(line in (tmp_path / "run/log/commander/commander_logger.txt").read_text() for line in said)
    with pytest.raises(ConfigError, match="no such setting"):
        launch(user.config, run_dir=tmp_path / "other", overrides=["collector.cont=1"])
    assert not (tmp_path / "other").exists()
