"""Finds run folders, and reads progress.txt of Remuda and of programs with the same table."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import cast

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from remuda.config.errors import flat
from remuda.storage.bucket.address import address_of
from remuda.storage.existing_folder import REPLACED
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import json_of, read_bounded

_NOT_LEARNED_FROM = (
    *("name", "exp_name", "seed", "source_dir"),
    *("stop", "log", "checkpoint", "limits", "launch", "affinity"),
)
"""Settings that may differ between runs of a group."""
_MOST_CONFIG_BYTES = 16 << 20
_SEED_SUFFIX = re.compile(r"_s[0-9]+")


@dataclass(frozen=True)
class Run:
    """The content of a run folder."""

    root: Path
    """Path of the folder, beginning with the given path."""
    name: str
    """Name of the run, without `_s<seed>`."""
    columns: Mapping[str, FloatArray]
    """Columns of progress.txt; see `read_progress`."""
    settings: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Settings that affect learning, by dotted key; empty for folders of other programs."""
    folder_index: int = 0
    """Index of the given folder that contains the run."""

    @property
    def rows(self) -> int:
        """Number of rows in the table."""
        return len(next(iter(self.columns.values())))


def expand(given: Sequence[str]) -> list[Path]:
    """Return the folders for the given texts: an existing folder, or else all folders next to it with the last part in
    their names.

    `runs/ppo` means runs/ppo if it exists, or else for example runs/cartpole_ppo and runs/ppo_s1. Raises PlotError if
    no folder exists.
    """
    folders: list[Path] = []
    for text in given:
        path = Path(text)
        found = [path] if path.is_dir() else _holding(path)
        if not found and (address := address_of(text)):
            raise PlotError(f"{address} is an address: copy the runs, with `remuda fetch {quote(address)}`")
        if not found:
            raise PlotError(f"{text}: no such folder, and no folder in {path.parent} with {path.name!r} in its name")
        folders += found
    return folders


def find_runs(folders: Sequence[Path], *, select: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Run]:
    """Return all runs in and below `folders`, without duplicates, in natural order, without files moved away by
    `--force`.

    Selects runs whose path contains all of `select` and no text of `exclude`. Raises PlotError if no run is left.
    """
    known: set[Path] = set()
    roots: list[tuple[int, Path]] = []
    for folder_index, folder in enumerate(folders):
        for root in sorted(_roots(folder), key=_natural):
            if root.resolve() not in known:
                known.add(root.resolve())
                roots.append((folder_index, root))
    if not roots:
        raise PlotError(f"no progress.txt in or below {', '.join(map(str, folders))}: is that a run folder?")
    chosen = [
        (folder_index, root)
        for folder_index, root in roots
        if all(part in str(root) for part in select) and not any(part in str(root) for part in exclude)
    ]
    if not chosen:
        raise PlotError(f"--select and --exclude exclude all of {len(roots)} runs, such as {roots[0][1]}")
    return [_read(root, folder_index) for folder_index, root in chosen]


def _holding(path: Path) -> list[Path]:
    if not path.name or not path.parent.is_dir():
        return []
    return sorted((one for one in path.parent.iterdir() if path.name in one.name and one.is_dir()), key=_natural)


def _roots(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != REPLACED]
        if RunFolder(Path(root)).progress.name in files:
            yield Path(root)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Order `_s2` before `_s10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", str(path))]


def described(
    root: Path, config: Mapping[str, JsonValue], columns: Mapping[str, FloatArray], folder_index: int = 0
) -> Run:
    """Return the run with this config; empty means no config."""
    name = config.get("name", config.get("exp_name"))
    if not isinstance(name, str):
        name = root.resolve().name
    ours = "name" in config  # Spinning Up writes exp_name, and its configs contain values that differ between seeds
    settings = flat({key: value for key, value in config.items() if key not in _NOT_LEARNED_FROM}) if ours else {}
    return Run(root, _without_seed(name, config.get("seed")), columns, settings, folder_index)


def _read(root: Path, folder_index: int) -> Run:
    folder = RunFolder(root)
    return described(root, _config(folder.config_json), read_progress(folder.progress), folder_index)


def _config(path: Path) -> Mapping[str, JsonValue]:
    try:
        content = json_of(read_bounded(path, most_bytes=_MOST_CONFIG_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise PlotError(f"{path} cannot be read: {error}") from None
    return cast("Mapping[str, JsonValue]", content) if isinstance(content, dict) else {}


def _without_seed(name: str, seed: object) -> str:
    if isinstance(seed, int):
        return name.removesuffix(f"_s{seed}") or name
    suffix = _SEED_SUFFIX.search(name, max(name.rfind("_"), 0))
    return name[: suffix.start()] or name if suffix and suffix.end() == len(name) else name


FloatArray = NDArray[np.float64]
_MOST_BYTES = 512 << 20


def read_progress(path: Path) -> Mapping[str, FloatArray]:
    """Return the columns, with one float64 per row; nan for cells without a number.

    Ignores a last line without an end, which is still being written. Raises PlotError for a file without such a table.
    """
    try:
        text = read_bounded(path, most_bytes=_MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlotError(f"{path} cannot be read: {error}") from None
    header, *rows = text[: text.rfind("\n") + 1].splitlines() or [""]
    names = header.split("\t")
    if not header or len(set(names)) < len(names):
        raise PlotError(f"{path} is not a table: its first line must name each column once, separated by tabs")
    cells = [row.split("\t") for row in rows]
    for number, row in enumerate(cells, start=2):
        if len(row) != len(names):
            raise PlotError(f"{path}:{number}: {len(row)} cells for {len(names)} columns; correct or remove the line")
    return {name: np.array([cell_number(row[at]) for row in cells], np.float64) for at, name in enumerate(names)}


def cell_number(cell: str | bytes) -> float:
    """Return the number of a cell; nan for other cells."""
    try:
        return float(cell)
    except ValueError:  # empty, or the name of something
        return math.nan


class PlotError(Exception):
    """The requested curves cannot be drawn; the message names the missing part and its place."""
