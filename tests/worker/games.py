"""Configs of runs whose environment has several agents: the game `Leaving`, from a user's folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from remuda.config.schema import ExperimentConfig
from remuda.tests.environments.leaving import Leaving
from remuda.tests.worker.leases import small_config

LENGTHS, COPIES = (3, 7, 5), 2
AGENTS = tuple(f"a{number}" for number in range(len(LENGTHS)))
GAME = """
from remuda.tests.environments.leaving import Leaving

MADE = []

def make(lengths):
    MADE.append(Leaving(lengths))
    return MADE[-1]
"""


def shared_config(folder: Path, **sections: Any) -> ExperimentConfig:
    """All agents share one policy, and have their names already, as after `submit`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "leased_game.py").write_text(GAME)
    sys.modules.pop("leased_game", None)
    kwargs = {"lengths": list(LENGTHS)}
    env = {
        "kind": "pettingzoo",
        "make": "leased_game:make",
        "vectorization": "sync",
        "kwargs": kwargs,
        "num_envs": COPIES,
        "agents": AGENTS,
    }
    return small_config(source_dir=str(folder), **{"env": env, **sections})


def games() -> list[Leaving]:
    """Those that were made for the config that was made last."""
    return cast("list[Leaving]", cast("Any", sys.modules["leased_game"]).MADE)
