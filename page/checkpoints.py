"""The checkpoints of a run, with returns and films."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from remuda.logbook.event_file import film_in
from remuda.page.commands import RequestedEvaluation
from remuda.page.growing import GrowingReader
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import open_regular
from remuda.wire.messages import MOST_FILM_BYTES, CheckpointRecord

MOST_FILMS = 10_000
_TAG = b"film_iter/first_episode"
_TAG_WITHIN = 256
"""Bytes at the beginning of a record that include its tag."""
_HEADER_BYTES, _CRC_BYTES = 12, 4
_BLOCK_BYTES = 1 << 20
_LARGEST_RECORD = 16 << 20
_GIF = (b"GIF87a", b"GIF89a")


class NoFilmError(Exception):
    """The checkpoint has no film."""


class FilmView(Struct, frozen=True):
    """A film of the first episode in the evaluation of a checkpoint."""

    train_iter: int
    size_bytes: int


class _EventFile(GrowingReader):
    """Finds the films in an event file."""

    def _forget(self) -> None:
        super()._forget()
        self.films: dict[int, tuple[int, int]] = {}
        """Begin and size in bytes by checkpoint."""

    @property
    def kept_bytes(self) -> int:
        return 200 * len(self.films)

    def film(self, train_iter: int) -> bytes:
        """Return the bytes at the place of a checkpoint's film. Raises OSError."""
        begin, size = self.films[train_iter]
        with open_regular(self._path, follow_link=False) as file:
            return os.pread(file.fileno(), size, begin)

    def _read_block(self, descriptor: int, offset: int) -> tuple[int, bool]:
        block, position = os.pread(descriptor, _BLOCK_BYTES, offset), 0
        while position + _HEADER_BYTES <= len(block):
            length = int.from_bytes(block[position : position + 8], "little")
            if length > _LARGEST_RECORD:
                return 0, True  # damaged: later records cannot be found
            end = position + _HEADER_BYTES + length + _CRC_BYTES
            if end > len(block):
                if position or len(block) < _BLOCK_BYTES:
                    break
                block = os.pread(descriptor, end, offset)  # a record longer than a block
                if len(block) < end:
                    return 0, True
            begin = position + _HEADER_BYTES
            if _TAG in block[begin : begin + min(length, _TAG_WITHIN)]:
                film = film_in(block[begin : begin + length])
                if film is not None and len(self.films) < MOST_FILMS:
                    self.films[film[0]] = offset + begin, length
            position = end
        return position, not position


class Films:
    """The films of a run. Thread-safe."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._file: tuple[Path, _EventFile] | None = None

    def all(self) -> list[FilmView]:
        """Return all films in order of checkpoints. Raises OSError."""
        with self._lock:
            file = self._newest_file()
            return [] if file is None else [FilmView(at, size) for at, (_, size) in sorted(file.films.items())]

    def gif(self, train_iter: int) -> bytes:
        """The film of a checkpoint. Raises NoFilmError, OSError."""
        with self._lock:
            file = self._newest_file()
            if file is None or train_iter not in file.films:
                raise NoFilmError(f"no film of iteration {train_iter}")
            gif = _gif(file.film(train_iter), train_iter)
        if gif is None:  # the file was rewritten
            raise NoFilmError(f"no film of iteration {train_iter} any more")
        return gif

    def _newest_file(self) -> _EventFile | None:
        """Return the newest event file, read to its end. A later file replaces the films of an earlier file."""
        path = _event_file(self._folder)
        if path is not None:
            if self._file is None or self._file[0] != path:
                self._file = path, _EventFile(path)
            self._file[1].read()
        return None if self._file is None else self._file[1]


def _gif(content: bytes, train_iter: int) -> bytes | None:
    step, gif = film_in(content) or (None, b"")
    return gif if step == train_iter and gif.startswith(_GIF) and len(gif) <= MOST_FILM_BYTES else None


def _event_file(folder: RunFolder) -> Path | None:
    """The newest event file of the commander, or of a serial run."""
    for place in (folder.commander_tb, folder.serial_tb):
        try:
            names = sorted(name for name in os.listdir(place) if name.startswith("events.out.tfevents."))
        except OSError:
            continue
        if names:
            return place / names[-1]
    return None


class CheckpointView(CheckpointRecord, frozen=True, kw_only=True):
    """A checkpoint."""

    size_bytes: int | None
    """None for a missing file."""
    best: bool
    last: bool
    film: bool


class Checkpoints(Struct, frozen=True):
    """The whole view."""

    checkpoints: list[CheckpointView]
    films: list[FilmView]
    evaluations: list[RequestedEvaluation]
    """Evaluations requested by operators, the newest first."""
    problem: str | None = None
    """Reason for an unreadable list."""


def checkpoints(folder: RunFolder, films: Films, evaluations: Sequence[RequestedEvaluation] = ()) -> Checkpoints:
    """Return the checkpoints in index.json, in order of train_iter. Raises OSError."""
    filmed = films.all()
    try:
        index = CheckpointIndex(folder.ckpt, follow_link=False)
    except CheckpointIndexError as error:
        return Checkpoints([], filmed, [*evaluations], str(error))
    with_film = {film.train_iter for film in filmed}
    best = None if index.best is None else index.best.train_iter
    last = None if index.last is None else index.last.train_iter
    listed = [
        CheckpointView(
            **asdict(record),
            size_bytes=_size(folder, record.file),
            best=record.train_iter == best,
            last=record.train_iter == last,
            film=record.train_iter in with_film,
        )
        for record in index.records
    ]
    return Checkpoints(listed, filmed, [*evaluations])


def _size(folder: RunFolder, file: str) -> int | None:
    try:
        return (folder.ckpt / file).stat().st_size
    except OSError:
        return None
