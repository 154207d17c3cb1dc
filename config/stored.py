"""The examples, which come with the package, by their names. Each algorithm says which are for which environment.

The comment at the top of each file says what was shown of it.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "examples"


def example_or_file(path: Path) -> Path:
    """Return the example that `path` names, as in `cartpole_dqn` or `examples/cartpole_dqn.yaml`.

    A file at `path` comes first. Where there is neither, `path` is returned as it is.
    """
    name = path.as_posix()
    if name.startswith("examples/"):
        name = name.removeprefix("examples/").removesuffix(".yaml")
    known = {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in FOLDER.rglob("*.yaml")}
    return path if name not in known or os.path.lexists(path) else known[name]
