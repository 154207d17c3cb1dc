"""How fast a MuZero run was: by its checkpoints, without its beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.benchmarks.muzero_parallel import CONFIG, FEW_UPDATES, SETTINGS, Pace, pace
from remuda.config.load import load_config
from remuda.tests.benchmarks.saved_run import run_with


def test_the_beginning_of_a_run_does_not_count(tmp_path: Path) -> None:
    # from the third checkpoint at 10 s to the last at 20 s: 200 updates, 800 steps
    assert pace(run_with(tmp_path, [0.0, 9.0, 10.0, 16.0, 20.0])) == Pace(env_steps_per_s=80.0, updates_per_s=20.0)


def test_a_run_that_is_hardly_begun_has_no_pace(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few checkpoints"):
        pace(run_with(tmp_path, [0.0, 1.0, 2.0]))


@pytest.mark.parametrize("more", [(), FEW_UPDATES])
def test_a_run_saves_more_checkpoints_than_are_left_out_and_keeps_them(more: tuple[str, ...]) -> None:
    config = load_config(CONFIG, overrides=(*SETTINGS, *more)).config
    assert config.checkpoint.interval_env_steps is not None
    saved = config.stop.max_env_steps // config.checkpoint.interval_env_steps
    assert 4 <= saved <= config.checkpoint.keep
    assert config.stop.stop_value is None
    assert config.collector.count == 2
