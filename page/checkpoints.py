"""The checkpoints of a run, with their returns and films."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from remuda.page.evaluations import AskedEvaluation
from remuda.page.films import Films, FilmView
from remuda.page.numbers import finite
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.run_folder import RunFolder


class CheckpointView(Struct, frozen=True, kw_only=True):
    """One checkpoint. See CheckpointRecord."""

    train_iter: int
    env_step: int
    episode: int
    wall_s: float
    return_mean: float | None
    file: str
    size_bytes: int | None
    """None if its file is gone."""
    created: str
    best: bool
    last: bool
    film: bool


class Checkpoints(Struct, frozen=True):
    """The whole view."""

    checkpoints: list[CheckpointView]
    films: list[FilmView]
    evaluations: list[AskedEvaluation]
    """Those that operators asked for, the newest first."""
    problem: str | None = None
    """Why the list cannot be read."""


def checkpoints(folder: RunFolder, films: Films, evaluations: Sequence[AskedEvaluation] = ()) -> Checkpoints:
    """Those that index.json lists, in order of train_iter. Raises OSError."""
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
            train_iter=record.train_iter,
            env_step=record.env_step,
            episode=record.episode,
            wall_s=record.wall_s,
            return_mean=finite(record.reward),
            file=record.file,
            size_bytes=_size(folder, record.file),
            created=record.created,
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
