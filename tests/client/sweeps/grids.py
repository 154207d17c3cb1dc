"""Small grids over the tiny runs of the serial tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from remuda.tests.runner.runs import write_user_folder

SHORT: dict[str, list[int]] = {"stop.max_env_steps": [60], "env.num_envs": [1]}


def write_grid(folder: Path, parameters: Mapping[str, Any], *, seeds: Any = None, **settings: Any) -> Path:
    """A grid called `hills` over tiny.yaml, both in `folder`; `settings` replace sections of the config."""
    write_user_folder(folder, **settings)
    path = folder / "grid.yaml"
    content: dict[str, Any] = {"name": "hills", "config": "tiny.yaml", "grid": dict(parameters)}
    path.write_text(yaml.safe_dump(content | ({} if seeds is None else {"seeds": seeds}), sort_keys=False))
    return path
