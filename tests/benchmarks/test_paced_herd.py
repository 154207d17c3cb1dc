"""The herd whose environments set its pace: how its pace is read, and that collectors without the folder stream."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from remuda.benchmarks import weak_scaling, without_folder
from remuda.benchmarks.paced_herd import CONFIG, Pace, Reading, slope, steps_per_s
from remuda.environments.make import make_single

FIGURES = [(each.PACE, each.WINDOW_S) for each in (weak_scaling, without_folder)]


def readings(pace: Pace, collectors: int, window_s: float) -> list[Reading]:
    """Five a second, of collectors that all hand in their chunks at the same moments."""
    period_s = pace.chunk_env_steps * pace.step_s
    return [
        (100.0 + 0.2 * number, collectors * pace.chunk_env_steps * int((0.2 * number + 0.1) / period_s))
        for number in range(int(window_s / 0.2))
    ]


@pytest.mark.parametrize(("pace", "window_s"), FIGURES)
@pytest.mark.parametrize("collectors", [1, 256])
def test_the_pace_is_right_even_if_all_hand_in_at_once(pace: Pace, window_s: float, collectors: int) -> None:
    found = slope(readings(pace, collectors, window_s))
    assert found == pytest.approx(pace.steps_per_s * collectors, rel=0.015)


@pytest.mark.parametrize("pace", [pace for pace, _ in FIGURES])
def test_the_run_never_ends_by_itself_and_begins_with_all(pace: Pace) -> None:
    config = pace.config(64)
    assert (config.collector.count, config.collector.minimum) == (64, 64)
    assert (config.env.kwargs, config.env.vectorization) == ({"step_s": pace.step_s}, "sync")
    assert config.stop.stop_value is None
    assert pace.chunk_env_steps % pace.num_envs == 0, "a chunk is as long as it says"


def test_a_step_sleeps_and_an_episode_ends() -> None:
    config = Pace(step_s=0.001, num_envs=1, chunk_env_steps=1).config(1)
    env = make_single(config.env, source_dir=str(Path(CONFIG).parent))
    env.reset(seed=0)
    begin_s, steps, over = time.monotonic(), 0, False
    while not over:
        _, reward, terminated, truncated, _ = env.step(np.int64(0))
        steps, over = steps + 1, terminated or truncated
        assert reward == 1.0
    assert steps == 200
    assert time.monotonic() - begin_s >= 0.2


@pytest.mark.processes
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("shared_folder", [True, False])
def test_two_real_collectors_are_measured(shared_folder: bool) -> None:
    """It also checks that those which see the folder do not stream, and that the others do."""
    pace = Pace(step_s=0.005, num_envs=2, chunk_env_steps=20)
    assert steps_per_s(pace, 2, shared_folder=shared_folder, window_s=2.0) > 0
