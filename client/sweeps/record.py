"""Records of a sweep's runs, kept in sweep.json for the next start."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from remuda.client.sweeps.lineage import Lineage
from remuda.storage.atomic import write_bytes
from remuda.storage.existing_folder import Mode
from remuda.storage.untrusted import NotOrdinaryError, read_bounded

FILE = "sweep.json"
_MOST_BYTES = 64 << 20

RunState = Literal["waiting", "queued", "running", "finished", "stopped", "failed"]
"""`waiting` was not started yet; `queued` was submitted, and waits for workers."""
OVER: tuple[RunState, ...] = ("finished", "stopped", "failed")


class SweepFileError(Exception):
    """sweep.json is damaged, or belongs to another sweep; the message names the file."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """A run of a sweep: settings, progress and end."""

    name: str
    variant: str
    seed: int
    settings: dict[str, Any]
    run_dir: str
    """Inside the sweep's folder."""
    state: RunState = "waiting"
    reason: str | None = None
    """Reason of the end, as in `remuda status`; for a queued run, the reason of the wait."""
    experiment: str | None = None
    """Id of the experiment at the coordinator."""
    env_step: int = 0
    train_iter: int = 0
    last_return: float | None = None
    best_return: float | None = None
    wall_s: float = 0.0

    @property
    def over(self) -> bool:
        return self.state in OVER


class SweepFile(Struct, frozen=True, omit_defaults=True):
    """Content of sweep.json."""

    format: Literal[1]
    name: str
    mode: Mode
    runs: tuple[RunRecord, ...]
    lineage: Lineage | None = None
    """Of a population."""


class SweepBook:
    """sweep.json in the folder of a sweep; `write` returns when the file is on disk."""

    def __init__(self, folder: Path, *, name: str, mode: Mode) -> None:
        """Read sweep.json, if the file exists. Raises SweepFileError."""
        self._path = folder / FILE
        self._name = name
        self._mode: Mode = mode
        content = self._read()
        self.runs = {} if content is None else {record.name: record for record in content.runs}
        """Records by name, including runs that are no longer in the grid."""
        self.lineage = None if content is None else content.lineage
        """Of a population that has begun."""

    def clear(self) -> None:
        """Forget all runs and the lineage; the next `write` replaces the file."""
        self.runs, self.lineage = {}, None

    def write(self, records: Iterable[RunRecord], lineage: Lineage | None = None) -> None:
        """Replace the records with the same names by these, and the lineage unless None, both at once."""
        self.runs |= {record.name: record for record in records}
        self.lineage = lineage or self.lineage
        content = SweepFile(1, self._name, self._mode, tuple(self.runs.values()), self.lineage)
        write_bytes(self._path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n", durable=True)

    def _read(self) -> SweepFile | None:
        content = read_sweep(self._path.parent)
        if content is None:
            return None
        if content.name != self._name:
            raise SweepFileError(f"{self._path.parent} is the folder of the sweep {content.name}, not of {self._name}")
        if content.mode != self._mode:
            where = {"serial": "on this machine: --on local", "parallel": "on a herd: --on herd"}[content.mode]
            raise SweepFileError(f"{self._path.parent}: this sweep was started {where}")
        return content


def read_sweep(folder: Path, *, follow_link: bool = True) -> SweepFile | None:
    """Return the content of sweep.json in a folder; None without one. Raises SweepFileError."""
    path = folder / FILE
    try:
        content = read_bounded(path, most_bytes=_MOST_BYTES, follow_link=follow_link)
        return msgspec.json.decode(content, type=SweepFile)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, NotOrdinaryError) as error:
        raise SweepFileError(f"{path} is damaged ({error}): restore it, or move it away") from None
