"""Whole episodes, from the stored rows of a run or for a learner without environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.buffer.chunk import Columns
from remuda.buffer.frames import FRAMES, index_name, stacks_name
from remuda.wire.messages import ChunkMeta

Column = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

LANE, END, STEP_REWARD = "lane", "end", "step_reward"
"""Columns of n-step rows for `counted_episodes`: number of the environment; TERMINATED and OVER; the first reward, if
`reward` sums several."""
ABOUT_EPISODES = frozenset((LANE, END, STEP_REWARD))
"""Columns that no learner reads."""
TERMINATED, OVER = 1, 2
"""Bits of END, about the first step of a row: nothing follows the step (in some games a life is lost); and the episode
is over."""


class NotStoredError(ValueError):
    """Rows do not hold the steps of episodes; the message says which rows do."""


@dataclass(frozen=True)
class Episodes:
    """Episodes one after the other, in one array per quantity."""

    observations: Column
    """[steps + episodes, …]: an episode has an observation more than steps, the last one."""
    actions: Column
    """[steps, …]"""
    rewards: Column
    """[steps]"""
    terminated: npt.NDArray[np.bool_]
    """[steps]"""
    lengths: Integers
    """[episodes]: steps, at least 1."""

    @classmethod
    def joined(cls, parts: Sequence[Episodes]) -> Episodes:
        """Return all episodes of the parts, at least one part, in order."""
        return cls(
            np.concatenate([one.observations for one in parts]),
            np.concatenate([one.actions for one in parts]),
            np.concatenate([one.rewards for one in parts]),
            np.concatenate([one.terminated for one in parts]),
            np.concatenate([one.lengths for one in parts]),
        )

    @property
    def steps(self) -> int:
        """Steps of all episodes."""
        return len(self.rewards)

    @property
    def last(self) -> npt.NDArray[np.bool_]:
        """True at the last step of an episode, [steps]."""
        last = np.zeros(self.steps, np.bool_)
        last[np.cumsum(self.lengths) - 1] = True
        return last

    @property
    def observed(self) -> Integers:
        """Index of the observation before each step, [steps]."""
        return np.arange(self.steps) + np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def returns(self) -> npt.NDArray[np.float64]:
        """Sum of rewards of each episode, [episodes]."""
        rewards = np.asarray(self.rewards, np.float64)
        return np.add.reduceat(rewards, np.cumsum(self.lengths) - self.lengths) if len(self.lengths) else np.zeros(0)

    def best(self, number: int) -> Episodes:
        """Return the episodes with the highest returns, in their order."""
        return self.taken(np.sort(np.argsort(-self.returns, kind="stable")[:number]))

    def taken(self, kept: Integers) -> Episodes:
        """Return these episodes, in this order."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[kept]
        steps, seen = _ranges(starts[kept], lengths), _ranges(starts[kept] + kept, lengths + 1)
        return Episodes(
            self.observations[seen], self.actions[steps], self.rewards[steps], self.terminated[steps], lengths
        )


def counted_episodes(chunks: Sequence[tuple[ChunkMeta, Columns]]) -> tuple[Episodes | None, int]:
    """Return the episodes whose ends the chunks count, in order of their ends; and the number of counted episodes whose
    beginnings are missing. None without a whole episode.

    `chunks` are in the order of their arrival. Raises NotStoredError for rows other than single steps.
    """
    streams: list[list[int]] = []
    open_streams: dict[tuple[str, int], int] = {}
    for place, (meta, _) in enumerate(chunks):
        worker = (meta.chunk.worker, meta.chunk.incarnation)
        known = open_streams.get(worker)
        if known is None or chunks[streams[known][-1]][0].chunk.sequence + 1 != meta.chunk.sequence:
            open_streams[worker] = known = len(streams)  # a gap: what an episode had before is gone
            streams.append([])
        streams[known].append(place)
    found = [_of_stream([chunks[place] for place in stream], np.array(stream)) for stream in streams]
    parts = [one for one in found if one is not None]
    missing = sum(len(meta.episode_lengths) for meta, _ in chunks) - sum(len(ended) for _, ended in parts)
    if not parts:
        return None, missing
    ended = np.concatenate([ended for _, ended in parts])
    return Episodes.joined([episodes for episodes, _ in parts]).taken(np.argsort(ended, kind="stable")), missing


def _of_stream(chunks: Sequence[tuple[ChunkMeta, Columns]], places: Integers) -> tuple[Episodes, Integers] | None:
    """Return the episodes in chunks of a worker, without a gap, and the place of the chunk with the end of each."""
    columns = _joined([columns for _, columns in chunks])
    rows = np.array([meta.rows for meta, _ in chunks])
    chunk_of = np.repeat(np.arange(len(chunks)), rows)
    over: npt.NDArray[np.bool_] = (columns[END] & OVER) > 0
    lengths = np.zeros(len(over), np.int64)
    for index, (meta, _) in enumerate(chunks):
        ends = np.flatnonzero(over & (chunk_of == index))
        if len(ends) == len(meta.episode_lengths):  # else an environment was replaced, and some ends do not count
            lengths[ends] = meta.episode_lengths
    by_lane = np.argsort(columns[LANE], kind="stable")
    lane = columns[LANE][by_lane]
    begins = np.ones(len(over), np.bool_)
    begins[1:] = (lane[1:] != lane[:-1]) | over[by_lane][:-1]
    at = np.arange(len(over))
    held = at - np.maximum.accumulate(np.where(begins, at, 0)) + 1
    whole = (lengths[by_lane] > 0) & (lengths[by_lane] <= held)  # a longer stretch began with an abandoned episode
    ends = np.flatnonzero(whole)
    ends = ends[np.argsort(by_lane[ends])]
    if not len(ends):
        return None
    own = lengths[by_lane[ends]]
    steps = by_lane[_ranges(ends - own + 1, own)]
    last = by_lane[ends]
    seen = np.insert(columns["obs"][steps], np.cumsum(own), columns["next_obs"][last], axis=0)
    rewards = columns.get(STEP_REWARD, columns["reward"])[steps]
    terminated: npt.NDArray[np.bool_] = (columns[END][steps] & TERMINATED) > 0
    return Episodes(seen, columns["action"][steps], rewards, terminated, own), places[chunk_of[last]]


def _joined(chunks: Sequence[Columns]) -> Mapping[str, Column]:
    """Return the columns of all rows. Raises NotStoredError."""
    for columns in chunks:
        if LANE not in columns:
            raise NotStoredError("its rows are not single steps, or were stored by an earlier version of Remuda")
    names = [stacks_name(name) or name for name in chunks[0] if name != FRAMES]
    return {name: np.concatenate([_whole(columns, name) for columns in chunks]) for name in names}


def _whole(columns: Columns, name: str) -> Column:
    """Return a column, of images the stacks."""
    if name in columns:
        return columns[name]
    index: Integers = columns[index_name(name)].astype(np.int64)
    return columns[FRAMES][index]


def _ranges(starts: Integers, lengths: Integers) -> Integers:
    """Concatenate ranges of integers, given the first integer and the length of each range: [sum of lengths]."""
    before = np.cumsum(lengths) - lengths
    ranges: Integers = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return ranges
