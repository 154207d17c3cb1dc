"""Ranks of other processes and hosts, played by threads of the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from remuda.learner.ranks.following import Here
from remuda.learner.ranks.line import Line, Message
from remuda.learner.ranks.network_line import ranks_pair
from remuda.learner.ranks.server import RankServer
from remuda.tests.patience import HANG_S
from remuda.tests.worker.leases import small_config
from remuda.wire.keys.pair import new_pair

WORKER = new_pair("worker")
PAIR = ranks_pair(WORKER, "group")


def hello(line: Line, rank: int) -> None:
    """Say who this is."""
    line.send(Message.HELLO, msgspec.json.encode(Here(rank, "two", 100 + rank)))


def recruited(server: RankServer, lines: Mapping[int, Line]) -> Sequence[Line]:
    """Let these ranks say hello; returns rank 0's lines to them, with nothing on their way."""
    with ThreadPoolExecutor(1) as pool:
        gathering = pool.submit(server.gather, HANG_S)
        for rank, line in lines.items():
            hello(line, rank)
        gathering.result()
    ends = server.lease(small_config(learner={"batch_size": 8, "ranks": 1 + len(lines)})).lines
    for line in ends:
        line.timeout_s = HANG_S
        line.skip_to(Message.HELLO, timeout_s=HANG_S)
    return ends
