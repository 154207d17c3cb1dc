"""Pictures of an episode as an animated GIF that browsers play: bounded in pixels, pictures and bytes."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from remuda.environments.make import SingleEnv
from remuda.environments.spaces import Array
from remuda.environments.video import encoder, frames_per_s, picture

MOST_SIDE_PIXELS = 320
"""Pixels per side; a larger picture is made smaller by a whole number."""
LEAST_FPS, MOST_FPS = 10.0, 50.0
"""Pictures per second: a film of every n-th step plays faster than the episode rather than more slowly than this, and
browsers slow down what plays faster."""
_FEWEST_PICTURES = 8
"""With this number of pictures or fewer, if their film is still too large, there is no film."""
_ENCODING_S = 20.0


class GifError(Exception):
    """The pictures could not be encoded; the text says why."""


@dataclass(frozen=True)
class Gif:
    """An animated GIF."""

    data: bytes
    height: int
    """Pixels; so is the width."""
    width: int


class PicturedEnv(gymnasium.Wrapper[Array, Any, Array, Any]):
    """Keeps pictures of the episode under way: of its reset, of every n-th step, and of its end."""

    def __init__(self, env: SingleEnv) -> None:
        super().__init__(env)
        self.pictures: list[Array] = []
        """The pictures, uint8 [height, width, 3] each."""
        self._every = 1
        self._steps = 0

    def begin(self, every: int) -> None:
        """Keep a picture of every `every`-th step from now on."""
        self.pictures, self._every = [], every

    @property
    def fps(self) -> float:
        """Pictures per second at which a film of them plays at the environment's own pace, within the bounds."""
        return min(max(frames_per_s(self) / self._every, LEAST_FPS), MOST_FPS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode."""
        began = super().reset(seed=seed, options=options)
        self.pictures, self._steps = [], 0
        self.shoot()
        return began

    def step(self, action: Any) -> tuple[Array, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one step."""
        outcome = super().step(action)
        self._steps += 1
        if self._steps % self._every == 0 or outcome[2] or outcome[3]:
            self.shoot()
        return outcome

    def shoot(self) -> None:
        """Keep a picture of the present state. Raises EnvironmentBuildError, and what the environment raises."""
        self.pictures.append(smaller(picture(self.env), MOST_SIDE_PIXELS))


def smaller(picture: Array, most_pixels: int) -> Array:
    """Make a picture [height, width, 3] smaller by the least whole number that brings both sides to `most_pixels`: a
    pixel becomes the mean of a square of them; the remainder at the lower and the right edge is left out."""
    height, width = picture.shape[:2]
    times = -(-max(height, width) // most_pixels)
    if times == 1:
        return np.ascontiguousarray(picture, np.uint8)
    height, width = height // times, width // times
    total = np.zeros((height, width, 3), np.uint32)
    for row in range(times):  # a seventh of the time that the mean over a view of squares takes
        for column in range(times):
            total += picture[row : height * times : times, column : width * times : times]
    mean: Array = total // times**2
    return mean.astype(np.uint8)


def gif_of(pictures: list[Array], fps: float, *, most_bytes: int) -> Gif:
    """Encode pictures uint8 [height, width, 3] of the same size, at least one. If that takes too many bytes, every
    second one is left out, and the film still plays for the same time. Raises GifError."""
    height, width = pictures[0].shape[:2]
    if any(each.shape != pictures[0].shape for each in pictures):
        raise GifError("the pictures change their size")
    if not height or not width:
        raise GifError("the pictures are empty")
    while True:
        data = _encoded(np.stack(pictures), fps)
        if len(data) <= most_bytes:
            return Gif(data, height, width)
        if len(pictures) < 2 * _FEWEST_PICTURES:
            raise GifError(f"{len(pictures)} pictures take {len(data)} bytes, and the most is {most_bytes}")
        pictures, fps = pictures[::2], fps / 2


def _encoded(pictures: Array, fps: float) -> bytes:
    """Of uint8 [n, height, width, 3]."""
    _, height, width, _ = pictures.shape
    raw = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-")
    # 256 colours of all pictures; without dithering, so that what stands still takes no bytes.
    colours = "split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none:diff_mode=rectangle"
    command = [encoder(), "-loglevel", "error", *raw, "-filter_complex", colours, "-f", "gif", "-loop", "0", "-"]
    try:
        done = subprocess.run(
            command,
            input=pictures.tobytes(),
            capture_output=True,
            timeout=_ENCODING_S,
            process_group=0,  # Ctrl-C is for the process that films
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GifError(f"the encoder did not work: {error}") from error
    if done.returncode != 0:
        raise GifError(f"the encoder failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
