"""The ledger: a chunk counts once, however often and in whatever order its announcements come."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.ledger import Ledger
from remuda.wire.messages import ChunkId, ChunkMeta, PolicyRef

WORKERS = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")


def meta(worker: int, incarnation: int, sequence: int, env_steps: int = 10, episodes: int = 0) -> ChunkMeta:
    return ChunkMeta(
        ChunkId(WORKERS[worker], incarnation, sequence),
        "f",
        env_steps - 1,
        env_steps,
        1,
        0,
        PolicyRef(),
        0.1,
        [1.0] * episodes,
        [5] * episodes,
    )


def test_counters_are_sums_over_accepted_chunks() -> None:
    ledger = Ledger()
    assert ledger.accept(meta(0, 1, 0, env_steps=10, episodes=2))
    assert ledger.accept(meta(0, 1, 1, env_steps=7, episodes=1))
    assert not ledger.accept(meta(0, 1, 0, env_steps=10, episodes=2))
    assert (ledger.env_step, ledger.rows, ledger.episode, ledger.chunks) == (17, 15, 3, 2)


def test_lives_of_a_worker_are_told_apart() -> None:
    ledger = Ledger()
    assert ledger.accept(meta(0, 1, 0))
    assert ledger.accept(meta(0, 2, 0))
    assert ledger.accept(meta(1, 1, 0))
    assert ledger.chunks == 3
    assert ChunkId(WORKERS[0], 2, 0) in ledger
    assert ChunkId(WORKERS[1], 2, 0) not in ledger


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_repeated_and_shuffled_announcements_count_to_the_step(seed: int, most: int) -> None:
    rng = random.Random(seed)
    chunks = [
        meta(worker, incarnation, sequence, env_steps=rng.randint(1, 100))
        for worker in (0, 1)
        for incarnation in (1, 2)
        for sequence in range(rng.randint(0, 8))
    ]
    arrivals = [chunk for chunk in chunks for _ in range(rng.randint(1, most))]
    rng.shuffle(arrivals)
    ledger = Ledger()
    accepted = sum(ledger.accept(chunk) for chunk in arrivals)
    assert accepted == len(chunks) == ledger.chunks
    assert ledger.env_step == sum(chunk.env_steps for chunk in chunks)
