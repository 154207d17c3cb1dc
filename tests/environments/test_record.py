"""A run folder describes its environment, pickled or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.config.schema import EnvConfig, ExperimentConfig
from remuda.environments.make import make_vector
from remuda.environments.record import record_environment
from remuda.storage.run_folder import RunFolder


def test_a_registered_environment_is_described_and_pickled(tmp_path: Path) -> None:
    config = ExperimentConfig(name="record", env=EnvConfig(id="CartPole-v1", num_envs=2))
    vector = make_vector(config.env, num_envs=2, source_dir=None)
    try:
        assert record_environment(RunFolder(tmp_path), config, vector) is None
    finally:
        vector.close()
    spec = json.loads((tmp_path / "env_spec.json").read_text())
    assert (spec["id"], spec["num_envs"]) == ("CartPole-v1", 2)
    assert (tmp_path / "vars.pkl").read_bytes().startswith(b"\x80")


def test_one_that_cannot_be_pickled_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "sulky.py").write_text(
        "import gymnasium\n"
        "class Sulky(gymnasium.Wrapper):\n"
        "    def __reduce__(self):\n"
        "        raise TypeError('not me')\n"
        "def make():\n"
        "    return Sulky(gymnasium.make('CartPole-v1'))\n"
    )
    config = ExperimentConfig(name="record", env=EnvConfig(make="sulky:make"), source_dir=str(tmp_path))
    vector = make_vector(config.env, num_envs=1, source_dir=str(tmp_path))
    try:
        warning = record_environment(RunFolder(tmp_path), config, vector)
    finally:
        vector.close()
    assert warning is not None
    assert "not me" in warning
    assert (tmp_path / "env_spec.json").exists()
    assert not (tmp_path / "vars.pkl").exists()


def test_a_disk_that_refuses_is_an_error(tmp_path: Path) -> None:
    config = ExperimentConfig(name="record", env=EnvConfig(id="CartPole-v1"))
    vector = make_vector(config.env, num_envs=1, source_dir=None)
    try:
        with pytest.raises(OSError, match="nowhere"):
            record_environment(RunFolder(tmp_path / "nowhere"), config, vector)
    finally:
        vector.close()
