"""Rank 0 with real processes beside it: they learn with it, and their end is noticed and explained."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks import processes
from remuda.learner.ranks.leading import LearnerRanks
from remuda.learner.ranks.processes import RankProcesses
from remuda.policy.base import Algorithm
from remuda.policy.ranks import RankLostError
from remuda.tests.patience import HANG_S, until
from remuda.tests.policy.cases import batch
from remuda.tests.worker.leases import algorithm_of, small_config

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("forked")]
Starts = Callable[[ExperimentConfig, Algorithm], LearnerRanks]


@pytest.fixture
def start() -> Iterator[Starts]:
    started: list[LearnerRanks] = []

    def begin(config: ExperimentConfig, algorithm: Algorithm) -> LearnerRanks:
        started.append(LearnerRanks(config, algorithm, RankProcesses))
        return started[-1]

    yield begin
    for ranks in started:
        ranks.close()


def two_ranks(**limits: float) -> ExperimentConfig:
    return small_config(learner={"batch_size": 8, "ranks": 2}, limits=limits)


def pid_of_rank_1(ranks: LearnerRanks) -> int:
    return int(ranks.describe().removeprefix("rank 1: pid ").split()[0])


def test_one_that_is_killed_is_named(start: Starts) -> None:
    config, rng = two_ranks(), np.random.default_rng(0)
    ranks = start(config, algorithm_of(config))
    ranks.learn(batch(rng, rows=9))
    pid = pid_of_rank_1(ranks)
    rank = psutil.Process(pid)
    rank.send_signal(signal.SIGKILL)
    until(lambda: rank.status() == psutil.STATUS_ZOMBIE, "rank 1 is dead")
    with pytest.raises(RankLostError, match=rf"^learner rank 1 \(pid {pid}\) ended by SIGKILL$"):
        ranks.learn(batch(rng, rows=9))
    with pytest.raises(RankLostError, match="ended by SIGKILL"):
        ranks.wait()


def test_one_that_hangs_is_given_up_after_its_limit_and_ended(start: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_S", 0.1)
    config = two_ranks(rank_s=2.0)
    ranks = start(config, algorithm_of(config))
    pid = pid_of_rank_1(ranks)
    rank = psutil.Process(pid)
    rank.suspend()
    with pytest.raises(
        RankLostError, match=rf"learner rank 1 \(pid {pid} on .*\) did not answer within 2 s \(limits.rank_s\)"
    ):
        ranks.learn(batch(np.random.default_rng(0), rows=9))
    ranks.close()
    assert not rank.is_running()


def test_a_rank_that_is_still_starting_ends_with_rank_0(tmp_path: Path) -> None:
    """Also if another rank has removed the folder: torch waits minutes for a file that is missing there."""
    (tmp_path / "store").touch()
    reading_end, lifeline = os.pipe()
    with (tmp_path / "store").open() as store:
        rank = processes._started(1, str(tmp_path), store.fileno(), reading_end)
    shutil.rmtree(tmp_path)
    try:
        until(lambda: psutil.Process(rank.pid).num_threads() > 1, "rank 1 listens for the end of rank 0")
        os.close(lifeline)
        assert rank.wait(HANG_S) == 0
    finally:
        os.close(reading_end)
        rank.kill()
        rank.wait()


STABLE = """
from pathlib import Path
import gymnasium

def make():
    if (Path(__file__).parent / "lame").exists():
        raise RuntimeError("the horse is lame")
    return gymnasium.make("CartPole-v1")
"""


def test_one_that_cannot_begin_says_why(tmp_path: Path) -> None:
    (tmp_path / "stable_of_ranks.py").write_text(STABLE)
    changes = {"env": {"make": "stable_of_ranks:make", "num_envs": 4}, "source_dir": str(tmp_path)}
    config = ExperimentConfig.model_validate(two_ranks().model_dump() | changes)
    algorithm = algorithm_of(small_config())
    (tmp_path / "lame").touch()
    with pytest.raises(RankLostError, match=r"learner rank 1 \(pid \d+\) ended by an error: .*the horse is lame"):
        LearnerRanks(config, algorithm, RankProcesses)
