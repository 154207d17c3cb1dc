"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.runner.serial import Start
from remuda.tests.cli.terminal import Terminal
from remuda.tests.runner.runs import run_tiny, tiny_config


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short serial run, which tests only read: those of the xdist_group "a tiny run"."""
    config = tiny_config(tmp_path_factory.mktemp("user"), "stop.max_env_steps=250", "env.episode_info=[side]")
    return run_tiny(config, Start(tmp_path_factory.mktemp("runs") / "tiny")).run_dir
