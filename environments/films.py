"""Films of episodes: an MP4 file per episode, written during the episode, and animated GIFs for browsers."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, cast

import gymnasium
import numpy as np

from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import SingleEnv, shown
from remuda.environments.spaces import Array
from remuda.wire.child_end import KILLED_S

_USUAL_FPS = 30
"""Pictures per second of environments without a rate in their metadata."""
_UNSEEN = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
MOST_SIDE_PIXELS = 320
"""Pixels per side; a larger picture is made smaller by a whole number."""
LEAST_FPS, MOST_FPS = 10.0, 50.0
"""Pictures per second. A film of every n-th step plays faster than the episode instead of below the minimum; browsers
slow down films above the maximum."""
MOST_PICTURES = 200
"""Most pictures of an episode, an even number; before a further picture every second is dropped, so of long episodes
every n-th step is shown."""
_FEWEST_PICTURES = 8
"""Least number of pictures; a film that is still too large is dropped."""
_ENCODING_S = 20.0


class Rendered(Protocol):
    """Environment of one or several agents that draws pictures."""

    metadata: Any

    def render(self) -> Any:
        """Return the current picture, in the form of the environment's render_mode."""
        ...


class Camera(Protocol):
    """Takes pictures of an environment during an episode."""

    def began(self) -> None:
        """The environment was reset."""
        ...

    def stepped(self, *, over: bool) -> None:
        """Process a step; `over` is True for the last step of the episode."""
        ...


class EpisodeFilms:
    """Writes `<folder>/<title>_episode_<n>.mp4` for each episode of an environment that renders pictures."""

    def __init__(self, env: Rendered, folder: Path) -> None:
        """Raises EnvironmentBuildError if the environment renders no pictures, or no encoder is installed."""
        mode: object = getattr(env, "render_mode", None)
        if mode != "rgb_array":
            raise EnvironmentBuildError(f"{named(env)} renders no pictures: its render_mode is {mode}")
        self._env, self._ffmpeg = env, encoder()
        self._folder = folder
        self._film: subprocess.Popen[bytes] | None = None
        self.title = "policy"
        """Title of the next files, with the name of the policy."""
        self.written: list[Path] = []
        """All files, in order of episodes."""
        self._episode = 0

    def begin(self, title: str) -> None:
        """Count the episodes of another policy, from 0."""
        self.title, self._episode = title, 0

    def began(self) -> None:
        """Begin the file of an episode."""
        self.cut()
        self._shoot()

    def stepped(self, *, over: bool) -> None:
        """Take one picture; the end of the episode finishes the file."""
        self._shoot()
        if over:
            self.cut()

    def cut(self) -> None:
        """Finish the file of the current episode. Raises OSError if writing failed."""
        film = self._film
        if film is None:
            return
        _, complaint = film.communicate()
        self._film = None
        if film.returncode != 0:
            raise OSError(f"{self.written[-1]} cannot be written: {complaint.decode(errors='replace').strip()}")

    def drop(self) -> None:
        """Stop the current episode and remove its file."""
        film, self._film = self._film, None
        if film is not None:
            film.kill()
            with suppress(subprocess.TimeoutExpired):
                film.communicate(timeout=KILLED_S)
            self.written.pop().unlink(missing_ok=True)

    def _shoot(self) -> None:
        seen = picture(self._env)
        if self._film is None:
            self._film = self._begin(height=seen.shape[0], width=seen.shape[1])
        try:
            cast("IO[bytes]", self._film.stdin).write(np.ascontiguousarray(seen, np.uint8).data)
        except BrokenPipeError:
            self.cut()  # raises the message of ffmpeg

    def _begin(self, *, height: int, width: int) -> subprocess.Popen[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self.title}_episode_{self._episode}.mp4"
        self._episode += 1
        fps = str(frames_per_s(self._env))
        pictures = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", fps, "-i", "-")
        # Codec, colours and even sides that every player supports.
        film = ("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-pix_fmt", "yuv420p", str(path))
        command = [self._ffmpeg, "-y", "-loglevel", "error", *pictures, *film]
        # imageio_ffmpeg.write_frames does not look at the exit code, so that a full disk would go unnoticed.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the filming process, which decides about the file
        )
        self.written.append(path)
        return process


def picture(env: Rendered) -> Array:
    """Render an environment: [height, width, 3]. Raises EnvironmentBuildError for anything but a picture."""
    seen: object = env.render()
    kind = seen.__class__.__name__
    array = cast("Array", seen) if isinstance(seen, np.ndarray) else None
    if array is None or array.ndim != 3 or array.shape[2] != 3:
        found = kind if array is None else array.shape
        raise EnvironmentBuildError(f"{named(env)} rendered {found}, and a picture is an array [height, width, 3]")
    return array


def frames_per_s(env: Rendered) -> float:
    """Pictures per second at the environment's own pace."""
    fps: float = env.metadata.get("render_fps") or _USUAL_FPS
    return fps


def named(env: object) -> str:
    """The name of an environment for people."""
    return shown(cast("SingleEnv", env)) if isinstance(env, gymnasium.Env) else type(env).__name__


def draw_unseen() -> None:
    """Set SDL for a process without display and sound, and silence complaints and greeting."""
    for name, value in _UNSEEN.items():
        os.environ.setdefault(name, value)


@contextmanager
def drawn_unseen() -> Generator[None]:
    """Set SDL like `draw_unseen` while the body draws the first picture, not for later environments."""
    added = _UNSEEN.keys() - os.environ.keys()
    draw_unseen()
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def encoder() -> str:
    """Path of ffmpeg. Raises EnvironmentBuildError."""
    try:
        executable: str = cast("Any", importlib.import_module("imageio_ffmpeg")).get_ffmpeg_exe()
        return executable
    except (ImportError, RuntimeError) as error:  # RuntimeError: a wheel without executable
        raise EnvironmentBuildError(
            f"recording needs an encoder of videos: pip install 'remuda[video]' ({error})"
        ) from error


class FilmError(Exception):
    """Failure to encode the pictures; the text gives the reason."""


@dataclass(frozen=True)
class Gif:
    """An animated GIF."""

    data: bytes
    height: int
    """Pixels, like the width."""
    width: int


class Pictures:
    """Keeps pictures of the current episode: reset, every n-th step, and end."""

    def __init__(self, env: Rendered) -> None:
        self._env = env
        self.pictures: list[Array] = []
        """Pictures, uint8 [height, width, 3]."""
        self._every = 1
        self._steps = 0

    @property
    def fps(self) -> float:
        """Pictures per second for playing at the environment's own pace, within the bounds."""
        return min(max(frames_per_s(self._env) / self._every, LEAST_FPS), MOST_FPS)

    def began(self) -> None:
        """Begin an episode."""
        self.pictures, self._every, self._steps = [], 1, 0
        self.shoot()

    def stepped(self, *, over: bool) -> None:
        """Keep the picture of a due step."""
        self._steps += 1
        if self._steps % self._every == 0 or over:
            if len(self.pictures) >= MOST_PICTURES:
                self.pictures, self._every = self.pictures[::2], 2 * self._every
            self.shoot()

    def shoot(self) -> None:
        """Keep a picture of the current state. Raises EnvironmentBuildError, and errors of the environment."""
        self.pictures.append(smaller(picture(self._env), MOST_SIDE_PIXELS))


def smaller(picture: Array, most_pixels: int) -> Array:
    """Reduce a picture [height, width, 3] by the least whole number that brings both sides to `most_pixels`: a pixel
    becomes the mean of a square. The remainder at the lower and the right edge is dropped."""
    height, width = picture.shape[:2]
    times = -(-max(height, width) // most_pixels)
    if times == 1:
        return np.ascontiguousarray(picture, np.uint8)
    height, width = height // times, width // times
    total = np.zeros((height, width, 3), np.uint32)
    for row in range(times):  # a seventh of the time of a mean over a view of squares
        for column in range(times):
            total += picture[row : height * times : times, column : width * times : times]
    mean: Array = total // times**2
    return mean.astype(np.uint8)


def gif_of(pictures: list[Array], fps: float, *, most_bytes: int) -> Gif:
    """Encode pictures uint8 [height, width, 3] of the same size, at least one. Above `most_bytes` every second picture
    is dropped, and the duration stays. Raises FilmError."""
    height, width = pictures[0].shape[:2]
    if any(each.shape != pictures[0].shape for each in pictures):
        raise FilmError("the pictures change their size")
    if not height or not width:
        raise FilmError("the pictures are empty")
    while True:
        data = _encoded(np.stack(pictures), fps)
        if len(data) <= most_bytes:
            return Gif(data, height, width)
        if len(pictures) < 2 * _FEWEST_PICTURES:
            raise FilmError(f"{len(pictures)} pictures take {len(data)} bytes, above the limit of {most_bytes}")
        pictures, fps = pictures[::2], fps / 2


def _encoded(pictures: Array, fps: float) -> bytes:
    """Encode uint8 [n, height, width, 3]. imageio with Pillow makes files of 1.5 to 3 times the size."""
    _, height, width, _ = pictures.shape
    raw = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-")
    # 256 colours of all pictures; without dithering, so that still parts take no bytes.
    colours = "split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none:diff_mode=rectangle"
    command = [encoder(), "-loglevel", "error", *raw, "-filter_complex", colours, "-f", "gif", "-loop", "0", "-"]
    try:
        done = subprocess.run(
            command,
            input=pictures.tobytes(),
            capture_output=True,
            timeout=_ENCODING_S,
            process_group=0,  # Ctrl-C is for the filming process
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FilmError(f"the encoder did not work: {error}") from error
    if done.returncode != 0:
        raise FilmError(f"the encoder failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
