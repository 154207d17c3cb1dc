"""The films of a run are found in its event file, and read on as it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.logbook.tensorboard import EventWriter
from remuda.page.checkpoints import Films, NoFilmError, checkpoints
from remuda.tests.page.folders import GIF, film, finished_run, run_folder


def test_films_beside_curves(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    writer = EventWriter(folder.commander_tb, now_s=lambda: 1.7e9)
    for step in range(300):
        writer.scalars("evaluator", {"reward_mean": step}, train_iter=step, env_step=step)
    writer.close()
    films = Films(folder)
    assert films.all() == []
    film(folder, 400)
    film(folder, 500, b"GIF89a" + bytes(300_000))
    assert [each.train_iter for each in films.all()] == [400, 500]
    assert films.gif(400) == GIF
    assert len(films.gif(500)) == 300_006
    with pytest.raises(NoFilmError):
        films.gif(401)


def test_what_is_no_gif_is_no_film(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    film(folder, 10, b"<html><script>alert(1)</script>")
    films = Films(folder)
    with pytest.raises(NoFilmError):
        films.gif(10)


def test_a_torn_or_damaged_file_is_read_up_to_there(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    film(folder, 10)
    (path,) = folder.commander_tb.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + b"\xff" * 50)
    assert [each.train_iter for each in Films(folder).all()] == [10]
    path.write_bytes(whole[:-1])
    films = Films(folder)
    assert films.all() == []
    path.write_bytes(whole)
    assert [each.train_iter for each in films.all()] == [10]


def test_a_run_without_films_has_none(tmp_path: Path) -> None:
    assert Films(run_folder(tmp_path / "runs", "a")).all() == []


def test_checkpoints_with_their_returns_and_films(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "runs", "a")
    film(folder, 10)
    (folder.ckpt / "iteration_0.pth.tar").unlink()
    found = checkpoints(folder, Films(folder))
    assert [(each.train_iter, each.return_mean, each.best, each.last, each.film) for each in found.checkpoints] == [
        (0, 9.0, False, False, False),
        (10, 100.0, True, False, True),
        (20, 50.0, False, True, False),
    ]
    assert [each.size_bytes for each in found.checkpoints] == [None, 100, 100]
    folder.index.write_text("{")
    assert checkpoints(folder, Films(folder)).problem is not None
