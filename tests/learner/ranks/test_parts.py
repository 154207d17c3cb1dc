"""Batches are split into parts, and results are put together as if one rank had learned from the whole."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import numpy as np
import pytest
import torch

from remuda.learner.ranks.parts import joined_result, packed, result_columns, split, unpacked
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
        np.testing.assert_array_equal(column, columns[name])
        assert column.dtype == columns[name].dtype


def test_columns_begin_where_their_numbers_may() -> None:
    """torch needs whole multiples of the size of a number."""
    columns: dict[str, np.ndarray] = {
        "a": np.ones(3, np.uint8),
        "b": np.ones(5, np.float32),
        "c": np.ones(1),
        "d": np.ones(1, np.float32),
    }
    for column in unpacked(packed(columns)).values():
        assert column.flags.aligned
        assert torch.from_numpy(column).sum() == len(column)


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


def test_rank_0_may_take_more_rows_than_the_others() -> None:
    parts = split({"obs": np.arange(10)}, 3, first=8)
    assert [part["obs"].tolist() for part in parts] == [[0, 1, 2, 3, 4, 5, 6, 7], [8], [9]]


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


def test_algorithms_without_priorities_have_none() -> None:
    bare = LearnResult({"loss": 1.0}, None, 4)
    assert joined_result(bare, [result_columns(bare)]) == bare


def test_ranks_that_decided_differently_are_an_error() -> None:
    with pytest.raises(RankLostError, match="rank 1 made 3 gradient updates of a batch, and rank 0 1"):
        joined_result(result(1.0), [result_columns(result(1.0, updates=3))])
