"""Prioritized batches of 256 out of 10^6 rows of CartPole: drawn, gathered and their priorities updated, in process."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from remuda.benchmarks.figure import Figure, Measure, compare, main
from remuda.benchmarks.peers import peer
from remuda.benchmarks.replay import Replay, announced, calls_per_s, cartpole_columns

CAPACITY = 1_000_000
BATCH_SIZE = 256
PEERS = {"cpprb": CAPACITY, "tianshou": CAPACITY, "torchrl": CAPACITY, "reverb": CAPACITY // 10}
"""How many rows each holds. Reverb takes in a few thousand a second; a tenth of the rows can only help it."""
AT_ONCE = 16
"""How many batches a learner asks for in one request, unless its config says otherwise."""

_CHUNK_ROWS = 1000
_NAME = "prioritized replay, 256 of 10^6 CartPole rows"
_SECONDS = 2.0


def figures(peers: bool) -> list[Figure]:
    """Batches per second, drawn one by one and 16 at once, against other systems and a plain numpy gather."""
    one, many = functools.partial(_drawn_per_s, 1), functools.partial(_drawn_per_s, AT_ONCE)
    limit = {"numpy gather of random rows": _gathered_per_s}
    # What is left of a plain gather after drawing and updating; no goal was set for it.
    found = compare(f"{_NAME} (raw)", unit="batches/s", goal=">= 0", ours=one, references=limit)
    if peers:
        found += compare(_NAME, unit="batches/s", goal=">= 2", ours=one, references=_peers(1))
        name = f"{_NAME}, {AT_ONCE} batches at once"
        found += compare(name, unit="requests/s", goal=">= 2", ours=many, references=_peers(AT_ONCE))
    return found


def _peers(batches: int) -> dict[str, Measure]:
    """Peers know no batches of batches: they draw as many rows at once."""
    rows = str(batches * BATCH_SIZE)
    return {
        name: peer(name, "prioritized_replay", str(capacity), rows, str(_SECONDS)) for name, capacity in PEERS.items()
    }


@functools.cache
def _filled() -> Replay:
    """A full buffer, all priorities different."""
    rng = np.random.default_rng(0)
    replay = Replay(CAPACITY)
    for sequence in range(CAPACITY // _CHUNK_ROWS):
        replay.insert(announced(sequence, _CHUNK_ROWS), cartpole_columns(_CHUNK_ROWS, rng))
    replay.update(np.arange(CAPACITY), rng.random(CAPACITY))
    return replay


def _drawn_per_s(batches: int) -> float:
    """How often a second so many batches are drawn together, gathered one by one, and updated together."""
    replay = _filled()
    errors = itertools.cycle(np.random.default_rng(1).random((64, batches * BATCH_SIZE)))
    return calls_per_s(lambda: replay.update(replay.sample(BATCH_SIZE, batches), next(errors)), seconds=_SECONDS)


def _gathered_per_s() -> float:
    rng = np.random.default_rng(0)
    columns = cartpole_columns(CAPACITY, rng)

    def gather() -> None:
        rows = rng.integers(CAPACITY, size=BATCH_SIZE)
        for column in columns.values():
            column.take(rows, axis=0)

    return calls_per_s(gather, seconds=_SECONDS)


if __name__ == "__main__":
    main(figures)
