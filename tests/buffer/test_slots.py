"""What is known of a slot lies together, and can be changed column by column."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from remuda.buffer.samplers import PrioritizedSampler, UniformSampler
from remuda.buffer.slots import SlotTable


@pytest.mark.parametrize("capacity", [1, 2, 1000, 100_003])
def test_no_slot_lies_on_two_lines_of_the_cache(capacity: int) -> None:
    table = SlotTable(capacity)
    columns = (table.end_row, table.uses, table.policy_iter, table.priority)
    starts = np.array([column.ctypes.data for column in columns])
    assert table.end_row.strides == (32,)
    assert (starts - starts.min()).tolist() == [0, 8, 16, 24]
    assert starts.min() % 64 == 0
    assert [len(column) for column in columns] == [capacity] * 4


def test_a_large_table_takes_no_memory_before_it_is_used() -> None:
    before = resident_bytes()
    tables = SlotTable(10_000_000), UniformSampler(10_000_000), PrioritizedSampler(10_000_000, 0.6)
    for sampler in tables[1:]:
        sampler.keep_priorities_in(tables[0].priority)
    assert resident_bytes() - before < 50_000_000, "and not hundreds of megabytes"


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss
