"""Batches are split into parts, and results are put together as if one rank had learned from the whole."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np
import pytest
import torch

from remuda.learner.ranks.parts import joined_result, packed, result_columns, split, unpacked
from remuda.learner.ranks.trial import RanksTrial
from remuda.policy.base import LearnResult
from remuda.policy.ranks import RankLostError


@pytest.mark.parametrize(("rows", "sizes"), [(8, [2, 3, 3]), (9, [3, 3, 3]), (3, [1, 1, 1])])
def test_each_row_goes_to_one_rank_in_order(rows: int, sizes: list[int]) -> None:
    batch: dict[str, np.ndarray] = {
        "obs": np.arange(rows * 2).reshape(rows, 2),
        "reward": np.arange(rows, dtype=np.float32),
    }
    parts = split(batch, 3)
    assert [len(part["reward"]) for part in parts] == sizes
    for name, column in batch.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), column)


def test_columns_of_every_type_go_through_a_message() -> None:
    columns = {
        "obs": np.arange(12, dtype=np.uint8).reshape(2, 3, 2)[:, ::2],
        "valid": np.array([True, False]),
        "action": np.array([3, 4]),
        "value": np.array([0.5, np.nan]),
        "none": np.empty((0, 3), np.float32),
    }
    arrived = unpacked(packed(columns))
    assert arrived.keys() == columns.keys()
    for name, column in arrived.items():
        assert column.flags.aligned, "torch needs whole multiples of the size of a number"
        np.testing.assert_array_equal(column, columns[name])
        assert column.dtype == columns[name].dtype


HOSTILE = {
    "no header": b"not json",
    "objects": b'{"a":{"dtype":"O","shape":[1],"data_offsets":[0,8]}}',
    "more than there is": b'{"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}',
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_columns_is_an_error(what: str) -> None:
    text = HOSTILE[what]
    with pytest.raises(RankLostError, match="a learner rank sent columns that cannot be read"):
        unpacked(np.frombuffer(len(text).to_bytes(8, "little") + text + bytes(8), np.uint8))


def result(*q_value: float, updates: int = 1) -> LearnResult:
    metrics: dict[str, float | torch.Tensor] = {
        "cur_lr": 0.1,
        "total_loss": torch.tensor(2.0),
        "q_value": torch.tensor(q_value),
    }
    return LearnResult(metrics, torch.tensor(q_value) + 1, updates)


def test_results_are_those_of_the_whole_batch() -> None:
    whole = joined_result(result(1.0, 2.0), [result_columns(result(3.0)), result_columns(result(4.0, 5.0))])
    assert whole.metrics["cur_lr"] == 0.1
    assert isinstance(whole.metrics["total_loss"], torch.Tensor)
    assert whole.metrics["total_loss"].item() == 2.0
    assert isinstance(whole.metrics["q_value"], torch.Tensor)
    assert whole.metrics["q_value"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert whole.priorities is not None
    assert whole.priorities.tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]


def test_ranks_that_decided_differently_are_an_error() -> None:
    with pytest.raises(RankLostError, match="rank 1 made 3 gradient updates of a batch, and rank 0 1"):
        joined_result(result(1.0), [result_columns(result(1.0, updates=3))])


def tried(*, computing_s: float, update_s: float) -> RanksTrial:
    """A trial in which rank 0 computes so long for a whole batch, and an update takes so long with all ranks."""
    trial = RanksTrial(2)
    while not trial.over:
        if trial.alone:
            trial.note(update_s=99.0, computing_s=computing_s)
        else:
            trial.note(update_s=update_s, computing_s=99.0)
    return trial


def test_ranks_that_take_less_time_are_of_use() -> None:
    verdict = tried(computing_s=0.1, update_s=0.06).verdict()
    assert verdict.faster
    assert verdict.text == "2 ranks take 60 ms for a batch, and one would take about 100 ms"


@pytest.mark.parametrize("update_s", [0.0005, 0.0002])
def test_ranks_that_take_as_long_or_longer_are_not(update_s: float) -> None:
    verdict = tried(computing_s=0.0002, update_s=update_s).verdict()
    assert not verdict.faster
    assert verdict.text.endswith("0.2 ms: they gain nothing, so set learner.ranks to 1 or learn from larger batches")
