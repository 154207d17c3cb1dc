"""Datasets on disk, as Minari writes and reads them (the extra `datasets`)."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.buffer.episodes import Episodes
from remuda.config.errors import Error

if TYPE_CHECKING:
    from remuda.environments.spaces import Space

MISSING = "datasets need Minari and h5py: pip install 'remuda[datasets]'"
_ID = re.compile(r"[-_\w]+-v[0-9]+")
_PARTIAL = ".partial"


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
