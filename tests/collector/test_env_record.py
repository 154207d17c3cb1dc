"""A run folder describes its environment, pickled or not, and no run ends for want of it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest

from remuda.collector import environments
from remuda.collector.environments import record_environment
from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.storage.run_folder import RunFolder
from remuda.tests.environments.stepping import copies_of


def recorded(folder: Path, env: EnvConfig) -> list[str]:
    """The warnings; the folder is the run's and has the user's module."""
    config = ExperimentConfig(name="record", env=env, source_dir=str(folder))
    vector = copies_of(config.env, num_envs=2, source_dir=config.source_dir)
    try:
        return record_environment(RunFolder(folder), config, vector)
    finally:
        vector.close()


def write_module(folder: Path, name: str, body: str) -> EnvConfig:
    """A user's module whose environments are CartPole with something wrong."""
    lines = ("import gymnasium", "class Wrong(gymnasium.Wrapper):", *body.splitlines(), "def make():")
    (folder / f"{name}.py").write_text("\n".join((*lines, "    return Wrong(gymnasium.make('CartPole-v1'))", "")))
    return EnvConfig(make=f"{name}:make", num_envs=2, vectorization="sync")


@pytest.mark.parametrize("raised", ["TypeError('not me')", "MemoryError('not me')"])
def test_one_that_cannot_be_pickled_is_warned_of(tmp_path: Path, raised: str) -> None:
    env = write_module(tmp_path, f"sulky_{raised[:2]}", f"    def __reduce__(self):\n        raise {raised}")
    (warning,) = recorded(tmp_path, env)
    assert "vars.pkl was not written" in warning
    assert "not me" in warning
    assert (tmp_path / "env_spec.json").exists()
    assert not (tmp_path / "vars.pkl").exists()


def test_a_disk_that_refuses_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str, *, durable: bool) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(environments, "write_text", full)
    (tmp_path / "vars.pkl").mkdir()  # nothing replaces a folder
    spec, copy = recorded(tmp_path, EnvConfig(id="CartPole-v1"))
    assert "env_spec.json was not written ([Errno 28] No space left" in spec
    assert "vars.pkl was not written, since the disk refused it" in copy
    assert {path.name for path in tmp_path.iterdir()} == {"vars.pkl"}
