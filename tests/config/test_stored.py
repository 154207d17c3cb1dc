"""What algorithms say of the examples is so, and all of them are valid and come with the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from remuda.config.algorithms.registry import BUILT_IN
from remuda.config.load import load_config
from remuda.config.stored import FOLDER

STORED = [
    (name, env_id, path) for name, one in BUILT_IN.items() for env_id, path in one.settings.stored_configs.items()
]


@pytest.mark.parametrize(("algorithm", "env_id", "path"), STORED, ids=[path.stem for _, _, path in STORED])
def test_each_file_is_for_its_algorithm_and_its_environment(algorithm: str, env_id: str, path: Path) -> None:
    config = load_config(path).config
    assert (config.policy.type, config.env.id, config.name) == (algorithm, env_id, path.stem)


def test_they_come_with_the_package() -> None:
    data = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert data["package-data"]["remuda"] == ["examples/*.yaml", "examples/*.py", "examples/sweeps/*.yaml"]
