"""The table of stored settings says what the examples are, and all of them are valid and come with the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from remuda.config.load import load_config
from remuda.config.stored import FOLDER, STORED, stored_config, stored_environments


@pytest.mark.parametrize(("key", "name"), STORED.items(), ids=STORED.values())
def test_each_file_is_for_its_algorithm_and_its_environment(key: tuple[str, str], name: str) -> None:
    config = load_config(FOLDER / name).config
    assert (config.policy.type, config.env.id) == key
    assert config.name == Path(name).stem
    assert stored_config(*key) == FOLDER / name


def test_what_is_not_there() -> None:
    assert stored_config("ppo", "Taxi-v3") is None
    assert stored_environments("nothing") == []
    assert stored_environments("impala") == ["ALE/Pong-v5", "CartPole-v1"]


def test_they_come_with_the_package() -> None:
    data = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert data["package-data"]["remuda"] == ["examples/*.yaml", "examples/*.py", "examples/sweeps/*.yaml"]
