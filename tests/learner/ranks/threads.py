"""Ranks as threads of the test's process, with real connections between them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from torch._C._distributed_c10d import HashStore

from remuda.learner.ranks.group import RankGroup
from remuda.tests.patience import HANG_S

Found = TypeVar("Found")


def in_ranks(count: int, act: Callable[[RankGroup], Found], *, timeout_s: float = HANG_S) -> list[Found]:
    """What `act` returns in each of so many ranks; raises what the lowest rank that failed raised."""
    store = HashStore()

    def be(rank: int) -> Found:
        with closing(RankGroup(store, rank, count, timeout_s=timeout_s)) as group:
            return act(group)

    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(be, rank) for rank in range(count)]]
