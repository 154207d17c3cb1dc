"""Films are files that a player opens, and show what happened."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.films import EpisodeFilms, encoder
from remuda.tests.environments.painter import HEIGHT, LENGTH, WIDTH, Painter
from remuda.tests.patience import HANG_S


def pictures(path: Path) -> np.ndarray:
    """A film's pictures uint8 [n, height, width, 3]."""
    ffmpeg = cast("str", cast("Any", importlib.import_module("imageio_ffmpeg")).get_ffmpeg_exe())
    said = subprocess.run([ffmpeg, "-i", str(path)], capture_output=True, text=True, timeout=HANG_S).stderr
    facts = re.search(r"Video: h264.* yuv420p.* (\d+)x(\d+).* (\d+) fps", said)
    assert facts, said
    width, height, fps = map(int, facts.groups())
    assert fps == 10
    raw = [ffmpeg, "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    frames = subprocess.run(raw, capture_output=True, check=True, timeout=HANG_S).stdout
    return np.frombuffer(frames, np.uint8).reshape(-1, height, width, 3)


def play(films: EpisodeFilms, env: Painter, steps: int = LENGTH) -> None:
    env.reset(seed=0)
    films.began()
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(0)
        films.stepped(over=terminated or truncated)


def test_a_film_shows_an_episode_from_its_reset_to_its_last_step(tmp_path: Path) -> None:
    env = Painter("rgb_array")
    films = EpisodeFilms(env, tmp_path / "films")
    play(films, env)
    (path,) = films.written
    seen = pictures(path)  # before the films are closed: an episode that is over is on disk
    films.cut()
    assert path == tmp_path / "films" / "policy_episode_0.mp4"
    assert seen.shape == (LENGTH + 1, HEIGHT, WIDTH, 3)
    white = (seen.mean(axis=(1, 3)) > 128).sum(axis=1)
    np.testing.assert_allclose(white, 5 * np.arange(LENGTH + 1), atol=1)


def test_each_episode_of_each_policy_has_a_file_of_its_own(tmp_path: Path) -> None:
    env = Painter("rgb_array")
    films = EpisodeFilms(env, tmp_path)
    films.begin("iteration_0")
    play(films, env)
    play(films, env, steps=3)
    films.cut()  # -l 3
    films.begin("iteration_7")
    play(films, env, steps=2)
    films.cut()
    names = ["iteration_0_episode_0.mp4", "iteration_0_episode_1.mp4", "iteration_7_episode_0.mp4"]
    assert [path.name for path in films.written] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [len(pictures(path)) for path in films.written] == [11, 4, 3]


class Odd(Painter):
    def render(self) -> Any:
        return np.zeros((33, 41, 3), np.uint8)


def test_odd_sides_are_made_even(tmp_path: Path) -> None:
    env = Odd("rgb_array")
    films = EpisodeFilms(env, tmp_path)
    play(films, env)
    films.cut()
    assert pictures(films.written[0]).shape == (LENGTH + 1, 34, 42, 3)


class Texts(Painter):
    def render(self) -> Any:
        return "a text"


def test_without_an_encoder_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(EnvironmentBuildError, match=r"pip install 'remuda\[video\]'"):
        encoder()


def test_what_renders_no_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBuildError, match="renders no pictures: its render_mode is None"):
        EpisodeFilms(Painter(), tmp_path)
    env = Texts("rgb_array")
    films = EpisodeFilms(env, tmp_path / "films")
    with pytest.raises(EnvironmentBuildError, match="rendered str, and a picture is an array"):
        films.began()
    films.cut()
    assert not (tmp_path / "films").exists()


def test_an_episode_that_is_given_up_leaves_no_film(tmp_path: Path) -> None:
    env = Painter("rgb_array")
    films = EpisodeFilms(env, tmp_path)
    play(films, env)
    play(films, env, 3)
    films.drop()
    films.drop()  # nothing happens
    assert films.written == list(tmp_path.iterdir())
    play(films, env)
    assert [len(pictures(film)) for film in films.written] == [LENGTH + 1] * 2
    films.cut()


def test_a_film_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "policy_episode_0.mp4").mkdir()
    env = Painter("rgb_array")
    films = EpisodeFilms(env, tmp_path)
    with pytest.raises(OSError, match=r"policy_episode_0\.mp4 cannot be written: .*"):
        play(films, env)
