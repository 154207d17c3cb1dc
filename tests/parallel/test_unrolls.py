"""A custom algorithm that learns from unrolls, with worker processes: every row is what some collector really did."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from remuda.tests.parallel.conftest import Launcher
from remuda.tests.policy.unrolled.configs import MAX_ENV_STEPS, unrolled
from remuda.tests.policy.unrolled.trails import noted

pytestmark = pytest.mark.processes


def steps_in(notes: Path, kind: str) -> set[tuple[int, ...]]:
    return set(map(tuple, noted(notes, kind).tolist()))


def test_it_is_trained_and_resumed(tmp_path: Path, launched: Launcher) -> None:
    """Two collectors, whose environments are in further processes. The learner fails at the first row that is anything
    else, and an environment at the first action that is not legal."""
    notes, run, config = tmp_path / "notes", tmp_path / "run", tmp_path / "unrolled.yaml"
    notes.mkdir()
    config.write_text(yaml.safe_dump(unrolled(notes, prioritized=True, processes=True)))
    launch = ("launch", config, "--run-dir", run)
    first = launched(tmp_path, *launch).ended()
    assert first.code == 0, first.err
    taken, learned = steps_in(notes, "taken"), steps_in(notes, "learned")
    assert len(taken) >= MAX_ENV_STEPS
    assert learned <= taken
    assert len(learned) > MAX_ENV_STEPS // 2
    for file in notes.glob("learned-*"):
        file.unlink()
    again = launched(tmp_path, *launch, "--set", f"stop.max_env_steps={2 * MAX_ENV_STEPS}", "--resume").ended()
    assert again.code == 0, again.err
    both = steps_in(notes, "learned")
    assert both <= steps_in(notes, "taken")
    assert both & taken, "the replay came back"
    assert both - taken, "and went on"
