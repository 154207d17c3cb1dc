"""The first row of progress.txt is that of the first evaluation, however late it came; newest rows outlive a crash."""

from __future__ import annotations

import msgspec
import pytest

from remuda.coordinator.commander.evaluation import EvaluationResult
from remuda.coordinator.commander.progress_rows import ProgressRows
from remuda.coordinator.snapshot import ProgressSnapshot
from remuda.tests.coordinator.configs import config
from remuda.wire.messages import CheckpointRecord, Counters

SETTINGS = config(log={"progress_interval_env_steps": 100})


def judged(train_iter: int, env_step: int) -> EvaluationResult:
    record = CheckpointRecord(train_iter, env_step, 1.0, None, f"iteration_{train_iter}.pth.tar", "0" * 64, "now")
    return EvaluationResult(record, (3.0, 5.0), (3, 5), 0.5)


@pytest.mark.parametrize(
    ("train_iter", "env_step", "shown", "following"), [(0, 0, 0, 150), (0, 968, 0, 1_000), (40, 330, 330, 401)]
)
def test_rows_begin_with_the_first_evaluation(train_iter: int, env_step: int, shown: int, following: int) -> None:
    """The learner that was to save the initial policy may have died, and the next one saves it later."""
    rows = ProgressRows(SETTINGS)
    assert rows.due(Counters(env_step=env_step)) is None
    first = rows.evaluated(judged(train_iter, env_step))
    assert first is not None
    assert (first.epoch, first.env_step) == (0, shown)
    second = rows.due(Counters(env_step=following))
    assert second is not None
    assert (second.epoch, second.env_step) == (1, following)
    assert rows.evaluated(judged(50, following)) is None, "shown in the next row"


def test_a_row_is_remembered_until_the_turn_after_it() -> None:
    rows = ProgressRows(SETTINGS)
    row = rows.evaluated(judged(0, 0))
    snapshot = msgspec.msgpack.decode(msgspec.msgpack.encode(rows.snapshot()), type=ProgressSnapshot)
    assert row is not None
    assert [(each.epoch, each.env_step, list(each.test_returns)) for each in snapshot.given] == [(0, 0, [3.0, 5.0])]
    assert rows.snapshot().given == rows.snapshot().given, "looking changes nothing"
    rows.news()
    assert rows.snapshot().given == []
