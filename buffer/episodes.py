"""Whole episodes: from the stored rows of a run, for a learner without environments, and in datasets on disk.

Minari writes and reads the datasets (the extra `datasets`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from remuda.buffer.chunk import Columns
from remuda.buffer.frames import FRAMES, index_name, stacks_name
from remuda.config.errors import Error
from remuda.wire.messages import ChunkMeta

if TYPE_CHECKING:
    from remuda.environments.spaces import Space

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
MISSING = "datasets need Minari and h5py: pip install 'remuda[datasets]'"
_ID = re.compile(r"[-_\w]+-v[0-9]+")
_PARTIAL = ".partial"


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


class DatasetError(Error, ValueError):
    """A dataset cannot be read or written; the message says what, where, and what to do."""


@dataclass(frozen=True)
class Dataset:
    """The whole content of a dataset."""

    episodes: Episodes
    spaces: tuple[Space, Space]
    """Of observations and actions."""
    about: Mapping[str, str]
    """Facts for people, by name: id, environment, spaces, algorithm, description."""


def require_minari() -> None:
    """Raise DatasetError without Minari."""
    if find_spec("minari") is None or find_spec("h5py") is None:
        raise DatasetError(MISSING)


def write_dataset(
    folder: Path, episodes: Episodes, *, spaces: tuple[object, object], env_spec: object, algorithm: str, text: str
) -> None:
    """Write a new dataset: `spaces` are the environment's observation and action space, `env_spec` is gymnasium's (or
    None), `text` describes the dataset. Its id is the name of the folder, with -v0 if without a version.

    Raises DatasetError, also for an existing folder, and OSError.
    """
    require_minari()
    if folder.exists():
        raise DatasetError(f"{folder} exists: name another folder, or remove this one first")
    name = folder.name if _ID.fullmatch(folder.name) else f"{folder.name}-v0"
    if not _ID.fullmatch(name):
        raise DatasetError(f"{folder.name!r} cannot be Minari's name of a dataset: use letters, digits, - and _ only")
    minari: Any = import_module("minari")  # has no annotations
    storage: Any = import_module("minari.dataset.minari_storage").MinariStorage
    buffer: Any = import_module("minari.data_collector").EpisodeBuffer
    folder = folder.absolute()  # Minari joins relative paths twice
    partial = folder.with_name(folder.name + _PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    observation, action = spaces
    made = storage.new(partial / "data", observation, action, env_spec, jpeg_encoding=False)  # to the bit
    about = {"dataset_id": name, "minari_version": str(minari.__version__), "algorithm_name": algorithm}
    made.update_metadata({**about, "description": text})
    made.update_episodes(buffer(**columns) for columns in _columns(episodes))
    os.replace(partial, folder)


def _columns(episodes: Episodes) -> Iterator[dict[str, object]]:
    """Yield the arrays of each episode."""
    truncated = episodes.last & ~episodes.terminated
    end = 0
    for index, steps in enumerate(episodes.lengths.tolist()):
        own, end = slice(end, end + steps), end + steps
        yield {
            "observations": episodes.observations[own.start + index : end + index + 1],
            "actions": episodes.actions[own],
            "rewards": episodes.rewards[own],
            "terminations": episodes.terminated[own],
            "truncations": truncated[own],
            "infos": {},
        }


def read_dataset(source: Path, *, sampled: bool = False) -> Dataset:
    """Read a dataset: a folder with Minari's data/ (or that folder itself). `sampled`: only the first and last episode,
    for a check. Raises DatasetError.

    The last step of an episode that ends in neither way counts as truncated.
    """
    require_minari()
    data = source / "data" if (source / "data").is_dir() else source
    try:
        opened: Any = import_module("minari").MinariDataset(data)
        indices = opened.episode_indices
        wanted = indices[:: max(len(indices) - 1, 1)] if sampled else indices
        read = [_episode(one, source) for one in opened.iterate_episodes(wanted)]
    except (ValueError, OSError, KeyError, AssertionError, ImportError) as error:
        raise DatasetError(f"{source} cannot be read as a Minari dataset: {error}") from error
    if not read:
        raise DatasetError(f"{source} has no episode")
    try:
        episodes = Episodes.joined(read)
    except ValueError as error:
        raise DatasetError(f"{source}: its episodes differ in shape: {error}") from error
    metadata, spec = opened.storage.metadata, opened.env_spec
    about = {
        "id": str(opened.id),
        "environment": "not named" if spec is None else str(spec.id),
        "observations": str(opened.observation_space),
        "actions": str(opened.action_space),
        "algorithm": str(metadata.get("algorithm_name") or "not named"),
        "description": str(metadata.get("description") or ""),
    }
    return Dataset(episodes, (opened.observation_space, opened.action_space), about)


def _episode(one: Any, source: Path) -> Episodes:
    """Convert an episode of Minari. Raises DatasetError for observations or actions of several parts."""
    for what, values in (("observations", one.observations), ("actions", one.actions)):
        if not isinstance(values, np.ndarray):
            raise DatasetError(f"{source}: {what} of several parts ({type(values).__name__}) cannot be read yet")
    steps = len(one.rewards)
    if not steps or len(one.actions) != steps or len(one.observations) != steps + 1:
        raise DatasetError(
            f"{source}: episode {one.id} has {steps} rewards, {len(one.actions)} actions and {len(one.observations)} "
            "observations; an episode has a step at least, and one more observation"
        )
    terminated, rewards = np.asarray(one.terminations, np.bool_), np.asarray(one.rewards, np.float32)
    return Episodes(one.observations, one.actions, rewards, terminated, np.array([steps]))
