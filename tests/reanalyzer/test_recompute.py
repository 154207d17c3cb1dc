"""A chunk's columns are computed again in parts, images included, and only as the algorithm declared them."""

from __future__ import annotations

import numpy as np
import pytest

from remuda.policy.base import Arrays, Reanalyzer
from remuda.reanalyzer import service as module
from remuda.reanalyzer.service import recompute


class Doubling(Reanalyzer):
    """Says twice the mean of the observation."""

    def __init__(self, dtype: type[np.generic] = np.float32) -> None:
        self.sizes: list[int] = []
        self.dtype = dtype

    def load_state(self, state: Arrays) -> None:
        raise AssertionError("not asked for here")

    def compute(self, columns: Arrays) -> dict[str, np.ndarray]:
        self.sizes.append(len(columns["value"]))
        means = columns["obs"].reshape(len(columns["obs"]), -1).mean(1)
        return {"value": (2 * means).astype(self.dtype)}


def test_all_rows_are_computed_in_parts_with_their_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 4)
    columns = {"obs": np.arange(20.0, dtype=np.float32).reshape(10, 2), "value": np.zeros(10, np.float32)}
    reanalyzer, progress = Doubling(), list[int]()
    found = recompute(columns, ["value"], reanalyzer, progress=progress.append)
    assert found.keys() == {"value"}
    np.testing.assert_array_equal(found["value"], 2 * columns["obs"].mean(1))
    assert reanalyzer.sizes == progress == [4, 4, 2]


def test_an_algorithm_that_returns_other_columns_than_it_declared_is_told_so() -> None:
    columns = {"obs": np.zeros((3, 2), np.float32), "value": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match="no column 'value' of the shape and dtype that it had"):
        recompute(columns, ["value"], Doubling(np.float64), progress=lambda rows: None)
