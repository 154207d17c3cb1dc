"""A film for browsers is bounded in pixels, pictures and bytes, and shows what happened."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from remuda.environments import films
from remuda.environments.films import FilmError, Pictures, gif_of, smaller
from remuda.tests.environments.gifs import delays_s, pictures_of
from remuda.tests.environments.painter import HEIGHT, LENGTH, WIDTH, Painter


def white_columns(pictures: np.ndarray) -> list[int]:
    """How many columns of each picture [n, height, width, 3] are white."""
    return [int((picture.mean(axis=(0, 2)) > 128).sum()) for picture in pictures]


def played(steps: int = LENGTH, env: Painter | None = None) -> Pictures:
    env = env or Painter("rgb_array")
    pictures = Pictures(env)
    env.reset(seed=0)
    pictures.began()
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(0)
        pictures.stepped(over=terminated or truncated)
    return pictures


@pytest.mark.parametrize(("most", "seen"), [(12, range(LENGTH + 1)), (6, range(0, 11, 2)), (4, (0, 4, 8, 10))])
def test_pictures_are_of_the_reset_of_every_nth_step_and_of_the_end(
    most: int, seen: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(films, "MOST_PICTURES", most)
    taken = played()
    assert white_columns(np.stack(taken.pictures)) == [5 * step for step in seen]


def test_a_film_plays_at_the_environments_own_pace_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The painter's is 10 pictures per second."""
    assert played().fps == 10.0
    env = Painter("rgb_array")
    env.metadata = {**env.metadata, "render_fps": 40}
    monkeypatch.setattr(films, "MOST_PICTURES", 6)
    assert played(env=env).fps == 20.0, "of every second step"
    monkeypatch.setattr(films, "MOST_PICTURES", 2)
    taken = played(env=env)
    assert taken.fps == films.LEAST_FPS
    env.metadata["render_fps"] = 1_000
    assert taken.fps == films.MOST_FPS


def test_large_pictures_are_made_smaller_by_means_of_squares() -> None:
    picture = np.zeros((5, 6, 3), np.uint8)
    picture[0, 0], picture[0, 1], picture[1, 0], picture[1, 1] = 10, 20, 30, 40
    picture[2:4, 4:6] = 200
    found = smaller(picture, 3)
    assert found.shape == (2, 3, 3)
    assert found[..., 0].tolist() == [[25, 0, 0], [0, 0, 200]]
    assert np.array_equal(smaller(picture, 6), picture)
    assert smaller(np.zeros((600, 400, 3), np.uint8), films.MOST_SIDE_PIXELS).shape == (300, 200, 3)


def test_a_gif_shows_the_pictures_again_and_again() -> None:
    env = played()
    found = gif_of(env.pictures, 20.0, most_bytes=100_000)
    assert (found.height, found.width, found.data[:6]) == (HEIGHT, WIDTH, b"GIF89a")
    seen = pictures_of(found.data, height=HEIGHT, width=WIDTH)
    assert white_columns(seen) == [5 * step for step in range(LENGTH + 1)]
    assert delays_s(found.data)[:LENGTH] == [0.05] * LENGTH
    assert b"NETSCAPE2.0\x03\x01\x00\x00" in found.data, "without end"


def noise(pictures: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (24, 32, 3), np.uint8) for _ in range(pictures)]


def test_too_many_bytes_are_brought_down_by_leaving_pictures_out() -> None:
    whole = gif_of(noise(32), 20.0, most_bytes=10**6)
    found = gif_of(noise(32), 20.0, most_bytes=len(whole.data) // 3)
    assert len(found.data) <= len(whole.data) // 3
    assert len(pictures_of(found.data, height=24, width=32)) == 8
    assert delays_s(found.data)[:7] == [0.2] * 7, "it plays as long"


def test_what_cannot_be_brought_down_is_an_error() -> None:
    with pytest.raises(FilmError, match=r"8 pictures take \d+ bytes, above the limit of 100"):
        gif_of(noise(16), 20.0, most_bytes=100)


def test_pictures_that_cannot_be_encoded_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FilmError, match="change their size"):
        gif_of([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)], 20.0, most_bytes=100_000)
    with pytest.raises(FilmError, match="empty"):
        gif_of([np.zeros((0, 4, 3), np.uint8)], 20.0, most_bytes=100_000)
    for broken, said in (("/bin/false", "the encoder failed"), ("/nowhere/ffmpeg", "the encoder did not work")):
        monkeypatch.setattr(films, "encoder", lambda path=broken: path)
        with pytest.raises(FilmError, match=said):
            gif_of([np.zeros((4, 4, 3), np.uint8)], 20.0, most_bytes=100_000)
