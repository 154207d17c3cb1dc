"""Serial runs of a custom algorithm that learns from unrolls: every row that it is given is what really happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.config.load import load_settings
from remuda.runner.serial import RunResult, Start, run
from remuda.storage.run_folder import RunFolder
from remuda.tests.policy.unrolled.configs import MAX_ENV_STEPS, NUM_ENVS, unrolled
from remuda.tests.policy.unrolled.trails import noted
from remuda.tests.runner.runs import Flag, Ticking
from remuda.tests.runner.test_run_folder import rows


def trained(place: Path, *, resume: bool = False, looks: int = 10**9, **options: Any) -> RunResult:
    notes = place / "notes"
    notes.mkdir(exist_ok=True)
    config = load_settings(unrolled(notes, **options), folder=place).config
    start = Start(place / "run", "resume" if resume else "error")
    return run(config, start, stop=Flag(looks), clock=Ticking())


def shown(result: RunResult, column: str) -> np.ndarray:
    """What progress.txt says, where there were updates."""
    values = np.array([row[column] for row in rows(RunFolder(result.run_dir).progress)])
    return np.asarray(values[np.isfinite(values)])


def steps_in(notes: Path, kind: str) -> set[tuple[int, ...]]:
    return set(map(tuple, noted(notes, kind).tolist()))


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("prioritized", [False, True])
def test_all_that_was_collected_is_learned_from_and_nothing_else(
    tmp_path: Path, images: bool, prioritized: bool
) -> None:
    result = trained(tmp_path, images=images, prioritized=prioritized)
    assert (result.reason, result.failed) == ("max_env_steps", False), result
    taken, learned = steps_in(tmp_path / "notes", "taken"), steps_in(tmp_path / "notes", "learned")
    assert len(taken) == result.counters.env_step >= MAX_ENV_STEPS
    assert learned <= taken
    assert (shown(result, "terminated") > 0).any()
    assert (shown(result, "truncated") > 0).any()
    assert not shown(result, "cut").any(), "nothing is cut off while a run goes on"
    if prioritized:
        assert shown(result, "odd").min() > 0.6, "rows of odd steps have the higher priority"
    else:
        assert len(learned) > 0.9 * (MAX_ENV_STEPS - NUM_ENVS * 5), "each is drawn eight times on average"
        assert shown(result, "odd").max() < 0.6


def test_a_resumed_run_learns_from_rows_of_before_and_of_after(tmp_path: Path) -> None:
    """And the windows under way when it was interrupted were lost as a whole: none goes on in another episode."""
    first = trained(tmp_path, looks=60)
    assert (first.reason, first.failed) == ("stopped", False), first
    notes = tmp_path / "notes"
    before = steps_in(notes, "taken")
    for file in notes.glob("learned-*"):
        file.unlink()
    second = trained(tmp_path, resume=True)
    assert second.reason == "max_env_steps", second
    assert MAX_ENV_STEPS - 100 > first.counters.env_step > 100
    learned = steps_in(notes, "learned")
    assert learned <= steps_in(notes, "taken")
    assert len(learned & before) > 50
    assert len(learned - before) > 50
    assert not shown(second, "cut").any()


def test_an_evaluation_plays_legal_actions_too(tmp_path: Path) -> None:
    """The environment raises at any other."""
    result = trained(tmp_path, episodes=5)
    assert (result.reason, result.failed) == ("max_env_steps", False), result
    assert result.best is not None
    assert result.best.reward_mean > 0
