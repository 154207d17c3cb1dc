"""Rows of CartPole taken into a full prioritized buffer of 10^6 rows, in blocks as collectors send them."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.benchmarks.replay import Replay, announced, calls_per_s, cartpole_columns
from remuda.buffer.chunk import Columns

CAPACITY = 1_000_000
BLOCKS = (64, 1024, 65536)
_SECONDS = 1.0


def figures(peers: bool) -> list[Figure]:
    """Rows per second at each block size, against cpprb's `add` of whole blocks and against copying the columns."""
    found: list[Figure] = []
    for block in BLOCKS:
        name, unit = f"bulk insert, blocks of {block}", "rows/s"
        ours = functools.partial(_inserted_per_s, block)
        limit = {"numpy copy of the columns": functools.partial(_copied_per_s, block)}
        # What is left of a plain copy after row ids, priorities and eviction; no goal was set for it.
        found += compare(f"{name} (raw)", unit=unit, goal=">= 0", ours=ours, references=limit)
        if peers:
            references = {"cpprb": peer("cpprb", "bulk_insert", str(CAPACITY), str(block), str(_SECONDS))}
            found += compare(name, unit=unit, goal=">= 1", ours=ours, references=references)
    return found


def _inserted_per_s(block: int) -> float:
    replay = Replay(CAPACITY)
    columns = cartpole_columns(block, np.random.default_rng(0))
    chunks = map(announced, itertools.count(), itertools.repeat(block))
    for _ in range(-(-CAPACITY // block)):
        replay.insert(next(chunks), columns)
    # Announcements come ready made: as many as would be used up at twice the speed of copying.
    ready = iter([next(chunks) for _ in range(min(200_000, 1_000_000_000 // block))])
    return block * calls_per_s(lambda: replay.insert(next(ready), columns), seconds=_SECONDS)


def _copied_per_s(block: int) -> float:
    columns = cartpole_columns(block, np.random.default_rng(0))
    kept: Columns = {name: np.zeros((CAPACITY, *column.shape[1:]), column.dtype) for name, column in columns.items()}
    starts = itertools.cycle(range(0, CAPACITY - block + 1, block))

    def copy() -> None:
        start = next(starts)
        for name, column in columns.items():
            kept[name][start : start + block] = column

    return block * calls_per_s(copy, seconds=_SECONDS)


if __name__ == "__main__":
    main(figures)
