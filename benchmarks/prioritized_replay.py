"""Prioritized batches of 256 out of 10^6 rows of CartPole: drawn, gathered and their priorities updated, in process."""

from __future__ import annotations

import functools

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.benchmarks.replay import Replay, announced, calls_per_s, cartpole_columns

CAPACITY = 1_000_000
BATCH_SIZE = 256
PEERS = ("cpprb", "tianshou", "torchrl", "reverb")
_CHUNK_ROWS = 1000
_NAME = "prioritized replay, 256 of 10^6 CartPole rows"
_SECONDS = 2.0


def figures(peers: bool) -> list[Figure]:
    """Batches per second one after the other, against other systems and against gathering random rows with numpy."""
    limit = {"numpy gather of random rows": _gathered_per_s}
    # What is left of a plain gather after drawing and updating; no goal was set for it.
    found = compare(f"{_NAME} (raw)", unit="batches/s", goal=">= 0", ours=_replayed_per_s, references=limit)
    if peers:
        arguments = (str(CAPACITY), str(BATCH_SIZE), str(_SECONDS))
        references = {name: peer(name, "prioritized_replay", *arguments) for name in PEERS}
        found += compare(_NAME, unit="batches/s", goal=">= 2", ours=_replayed_per_s, references=references)
    return found


@functools.cache
def _filled() -> Replay:
    """A full buffer, all priorities different."""
    rng = np.random.default_rng(0)
    replay = Replay(CAPACITY)
    for sequence in range(CAPACITY // _CHUNK_ROWS):
        replay.insert(announced(sequence, _CHUNK_ROWS), cartpole_columns(_CHUNK_ROWS, rng))
    replay.update(np.arange(CAPACITY), rng.random(CAPACITY))
    return replay


def _replayed_per_s() -> float:
    replay = _filled()
    errors = iter(np.random.default_rng(1).random((100_000, BATCH_SIZE)))

    def one_update() -> None:
        rows, _, _ = replay.sample(BATCH_SIZE)
        replay.update(rows, next(errors))

    return calls_per_s(one_update, seconds=_SECONDS)


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
