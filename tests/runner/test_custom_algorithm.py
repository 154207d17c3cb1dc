"""Algorithms of users in serial mode: learned, played, resumed, and no code is run unasked."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.config.load import load_config, load_settings
from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import UnknownAlgorithmError, make_policy
from remuda.policy.files.functions import load_policy, load_value
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.runner.serial import RunResult, Start, run
from remuda.tests.environments.masked import ACTIONS
from remuda.tests.policy.columns import NOTED, ROWS, STATE_SIZE
from remuda.tests.runner.runs import Flag, Ticking

EXAMPLES = Path(__file__).parents[2] / "examples"
SPACES = ObservationSpec((4,), "float32"), ActionSpec(2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A user's folder with the example in it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    user = tmp_path / "user"
    user.mkdir()
    for name in ("custom_algorithm.py", "custom_algorithm.yaml"):
        shutil.copy(EXAMPLES / name, user / name)
    yield user
    sys.modules.pop("custom_algorithm", None)


def config_in(folder: Path, *overrides: str) -> ExperimentConfig:
    return load_config(folder / "custom_algorithm.yaml", overrides=overrides).config


def trained(folder: Path, run_dir: Path, *overrides: str, resume: bool = False) -> RunResult:
    start = Start(run_dir, "resume" if resume else "error")
    return run(config_in(folder, *overrides), start, stop=Flag())


def short(folder: Path, run_dir: Path, *, env_steps: int, resume: bool = False) -> RunResult:
    settings = (f"stop.max_env_steps={env_steps}", "buffer.min_rows=100", "evaluator.episodes=1")
    return trained(folder, run_dir, *settings, resume=resume)


def test_a_run_of_it_is_resumed_and_played(folder: Path, tmp_path: Path) -> None:
    first = short(folder, tmp_path / "run", env_steps=150)
    second = short(folder, tmp_path / "run", env_steps=250, resume=True)
    assert not second.failed, second
    assert second.counters.env_step > first.counters.env_step
    assert second.counters.train_iter > first.counters.train_iter > 0
    env, get_action = load_policy(second.run_dir)
    observation, _ = env.reset(seed=0)
    assert get_action(observation) in (0, 1)
    assert get_action(observation, deterministic=False) in (0, 1)
    assert isinstance(load_value(second.run_dir)(observation), float)
    header = (second.run_dir / "progress.txt").read_text().splitlines()[0].split("\t")
    assert {"LossQ", "AverageQVals"} <= set(header)
    assert "no model/ is written" in (second.run_dir / "log" / "learner" / "learner_logger.txt").read_text()
    assert not list((second.run_dir / "model").glob("*"))


def test_code_that_has_changed_what_it_declares_is_refused_by_its_workers(folder: Path) -> None:
    config = config_in(folder)
    code = folder / "custom_algorithm.py"
    code.write_text(code.read_text().replace("n_step=1", "n_step=13"))
    with pytest.raises(UnknownAlgorithmError, match="its code has changed"):
        make_policy(config, *SPACES)


PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
BATCH = 4
SIZES = {"B": BATCH, "A": ACTIONS, "S": STATE_SIZE, "K": 3, "W": 5}
"""By the letters of the page, of the shapes in ROWS."""
TIME_STEPS = {"segments": 5, "sequences": 6}
"""N of the page."""
ELLIPSIS = {"obs": (2,), "next_obs": (2,)}
"""What `…` stands for: the shape of one observation of this environment; an action of it is a number."""


def listed(kind: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """The table of the page: column -> shape and dtype."""
    sections = PAGE.partition("\n### Columns of rows\n")[2].partition("\n### ")[0].split("\n#### ")
    (table,) = (section for section in sections if kind in section.partition("\n")[0].lower())
    rows = re.findall(r"^\| `(\w+)`(?: \((\w+)\))? \| `\[(.*?)\]` \| (\w+)", table, re.M)
    return {name: (_shape(name, shape, kind), dtype) for name, only, shape, dtype in rows if only in ("", kind)}


def _shape(name: str, text: str, kind: str) -> tuple[int, ...]:
    letters = {**SIZES, "N": TIME_STEPS.get(kind, 0)}
    sizes: list[int] = []
    for part in text.split(", "):
        letter, _, more = part.partition(" + ")
        sizes += ELLIPSIS.get(name, ()) if letter == "…" else [letters[letter] + int(more or 0)]
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
