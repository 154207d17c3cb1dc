"""Prioritized batches of 256 out of 10^5 stacks of four 84x84 frames, in process; and what a row costs in memory."""

from __future__ import annotations

import functools
import os

import numpy as np
import numpy.typing as npt
import psutil

from remuda.benchmarks.figure import Figure, Measure, compare, main
from remuda.benchmarks.peers import peer
from remuda.benchmarks.replay import Replay, announced, calls_per_s
from remuda.buffer.chunk import Columns
from remuda.collector.rows import observation_columns

CAPACITY = 100_000
BATCH_SIZE = 256
_ENVS, _CHUNK_SLOTS, _DEPTH, _SIDE = 8, 125, 4, 84
_CHUNK_ROWS = _ENVS * _CHUNK_SLOTS
_SECONDS = 2.0
_NAME = "prioritized replay, 256 of 10^5 stacks of 4 frames 84x84"
_MEMORY = "memory per row of stacks of 4 frames 84x84"
_WHOLE = {"cpprb": ("cpprb", "whole"), "tianshou": ("tianshou", "whole"), "torchrl": ("torchrl", "whole")}
_COMPRESSED = {
    "cpprb, next_of and stack_compress": ("cpprb", "compressed"),
    "tianshou, save_only_last_obs and ignore_obs_next": ("tianshou", "compressed"),
}
"""The peers as they store stacks whole, and with their own ways of not doing so."""


def figures(peers: bool) -> list[Figure]:
    """Batches per second one after the other, and resident bytes per row, which for plain columns are 56 kB."""
    limit = {"numpy gather of random frames": _gathered_per_s}
    stacks = {"obs and next_obs stored whole": lambda: 2.0 * _DEPTH * _SIDE * _SIDE}
    # What is left of a plain gather after drawing and updating; no goal was set for it.
    found = compare(f"{_NAME} (raw)", unit="batches/s", goal=">= 0", ours=_replayed_per_s, references=limit)
    found += compare(f"{_MEMORY} (raw)", unit="bytes", goal="<= 0.25", ours=_bytes_per_row, references=stacks)
    if peers:
        found += compare(_NAME, unit="batches/s", goal=">= 1.5", ours=_replayed_per_s, references=_peers("speed"))
        found += compare(_MEMORY, unit="bytes", goal="<= 0.25", ours=_bytes_per_row, references=_peers("memory"), n=1)
    return found


def _peers(what: str) -> dict[str, Measure]:
    arguments = (what, str(CAPACITY), str(BATCH_SIZE), str(_SECONDS))
    return {name: peer(who, "image_replay", how, *arguments) for name, (who, how) in (_WHOLE | _COMPRESSED).items()}


@functools.cache
def _filled() -> tuple[Replay, float]:
    """A full buffer, all priorities different, and the bytes per row that it made this process grow by."""
    rng = np.random.default_rng(0)
    frames = _frames(rng, _DEPTH)
    before = _resident_bytes()
    replay = Replay(CAPACITY)
    for sequence in range(CAPACITY // _CHUNK_ROWS):
        frames = np.concatenate([frames[-_DEPTH:], _frames(rng, _CHUNK_SLOTS)])
        replay.insert(announced(sequence, _CHUNK_ROWS), _columns(frames))
    replay.update(np.arange(CAPACITY), rng.random(CAPACITY))
    return replay, (_resident_bytes() - before) / CAPACITY


def _frames(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint8]:
    return rng.integers(0, 256, (count, _ENVS, _SIDE, _SIDE), dtype=np.uint8)


def _columns(frames: npt.NDArray[np.uint8]) -> Columns:
    """Rows of one step each, as a collector makes them of `frames` [time, env, side, side]."""
    stacks = np.stack([frames[depth : depth + _CHUNK_SLOTS + 1] for depth in range(_DEPTH)], axis=2)
    first = np.arange(_CHUNK_ROWS)
    return {
        **observation_columns(stacks, {"obs": first, "next_obs": first + _ENVS}),
        "action": first % 6,
        "reward": np.ones(_CHUNK_ROWS, np.float32),
        "discount": np.full(_CHUNK_ROWS, 0.99, np.float32),
    }


def _resident_bytes() -> int:
    return int(psutil.Process(os.getpid()).memory_info().rss)


def _bytes_per_row() -> float:
    return _filled()[1]


def _replayed_per_s() -> float:
    replay, _ = _filled()
    errors = np.random.default_rng(1).random((1024, BATCH_SIZE))
    done = 0

    def one_update() -> None:
        nonlocal done
        rows = replay.sample(BATCH_SIZE)
        replay.update(rows, errors[done % 1024])
        done += 1

    return calls_per_s(one_update, seconds=_SECONDS)


def _gathered_per_s() -> float:
    """As many frames, from an array made for it."""
    rng = np.random.default_rng(0)
    frames = np.full((CAPACITY, _SIDE, _SIDE), 7, np.uint8)
    out = np.empty((BATCH_SIZE, 2 * _DEPTH, _SIDE, _SIDE), np.uint8)

    def gather() -> None:
        first = rng.integers(CAPACITY - 2 * _DEPTH, size=(BATCH_SIZE, 1))
        frames.take(first + np.arange(2 * _DEPTH), axis=0, out=out, mode="clip")

    return calls_per_s(gather, seconds=_SECONDS)


if __name__ == "__main__":
    main(figures)
