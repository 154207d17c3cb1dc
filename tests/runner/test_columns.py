"""docs/algorithms.md lists the columns that `learn` is given: all of them and no other, with shapes and dtypes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.config.load import load_settings
from remuda.runner.serial import Start, run
from remuda.tests.environments.masked import ACTIONS
from remuda.tests.policy.columns import NOTED, ROWS, STATE_SIZE
from remuda.tests.runner.runs import Flag, Ticking

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
BATCH = 4
SIZES = {"B": BATCH, "A": ACTIONS, "S": STATE_SIZE, "T": 5, "K": 3, "W": 5, "L": 6}
"""By the letters of the page, of the shapes in ROWS."""
ELLIPSIS = {"obs": (2,), "next_obs": (2,)}
"""What `…` stands for: the shape of one observation of this environment; an action of it is a number."""


def listed(kind: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """The table of the page: column -> shape and dtype."""
    table = PAGE.partition(f"\n#### {kind.capitalize()}\n")[2].partition("\n#### ")[0].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `\[(.*?)\]` \| (\w+)", table, re.M)
    return {name: (_shape(name, shape), dtype) for name, shape, dtype in rows}


def _shape(name: str, text: str) -> tuple[int, ...]:
    sizes: list[int] = []
    for part in text.split(", "):
        letter, _, more = part.partition(" + ")
        sizes += ELLIPSIS.get(name, ()) if letter == "…" else [SIZES[letter] + int(more or 0)]
    return tuple(sizes)


@pytest.mark.parametrize("kind", ROWS)
def test_the_page_lists_the_columns_of(kind: str, tmp_path: Path) -> None:
    settings = {
        "name": "columns",
        "env": {"make": "remuda.tests.environments.masked:make", "num_envs": BATCH, "vectorization": "sync"},
        "policy": {"type": "remuda.tests.policy.columns:Columns", "rows": kind},
        "learner": {"batch_size": BATCH, "prefetch_batches": 1, "segments_per_update": BATCH},
        "collector": {"count": 1},
        "buffer": {"min_rows": 8, "capacity": 500, "prioritized": False},
        "evaluator": {"episodes": 0},
        "stop": {"max_env_steps": 80},
    }
    NOTED.clear()
    result = run(load_settings(settings, folder=tmp_path).config, Start(tmp_path / "run"), stop=Flag(), clock=Ticking())
    assert not result.failed, result
    assert listed(kind) == {name: (column.shape, column.dtype.name) for name, column in NOTED.items()}
