"""Ranks as threads of the test's process, with real lines between them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TypeVar

from remuda.learner.ranks.group import RankGroup
from remuda.learner.ranks.line import Line
from remuda.learner.ranks.local_line import LocalLine, line_pair
from remuda.tests.patience import HANG_S

Found = TypeVar("Found")


@contextmanager
def local_lines(timeout_s: float = HANG_S, other_s: float | None = None) -> Generator[tuple[LocalLine, LocalLine]]:
    """Rank 0's end of a line to rank 1, and that of rank 1, which waits for `other_s` if that is given."""
    one, other = line_pair()
    with (
        closing(LocalLine(one, "learner rank 1", timeout_s)) as of_0,
        closing(LocalLine(other, "learner rank 0", timeout_s if other_s is None else other_s)) as of_1,
    ):
        yield of_0, of_1


def in_ranks(
    count: int, act: Callable[[RankGroup], Found], *, timeout_s: float = HANG_S, others_s: float | None = None
) -> list[Found]:
    """What `act` returns in each of so many ranks; raises what the lowest rank that failed raised. Rank 0 waits for
    `timeout_s`, the others for `others_s` if that is given."""
    with ExitStack() as stack:
        pairs = [stack.enter_context(local_lines(timeout_s, others_s)) for _ in range(1, count)]
        ends: list[Sequence[Line]] = [[of_0 for of_0, _ in pairs], *([of_other] for _, of_other in pairs)]
        pool = stack.enter_context(ThreadPoolExecutor(count))
        acts = [pool.submit(act, RankGroup(rank, count, lines)) for rank, lines in enumerate(ends)]
        return [future.result() for future in acts]
