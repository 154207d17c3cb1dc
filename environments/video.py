"""Films episodes: one MP4 file for each, written while it is played."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, SupportsFloat, cast

import gymnasium
import numpy as np

from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import SingleEnv
from remuda.environments.spaces import Array

_USUAL_FPS = 30
"""Pictures per second where the environment's metadata does not say."""


class FilmedEnv(gymnasium.Wrapper[Array, Any, Array, Any]):
    """Writes `<folder>/<title>_episode_<n>.mp4` for each episode of an environment that renders pictures."""

    def __init__(self, env: SingleEnv, folder: Path) -> None:
        """Raises EnvironmentBuildError where there is nothing to film, or to film with."""
        super().__init__(env)
        if env.render_mode != "rgb_array":
            raise EnvironmentBuildError(f"{env} renders no pictures: its render_mode is {env.render_mode}")
        try:
            self._ffmpeg: Any = importlib.import_module("imageio_ffmpeg")
        except ImportError as error:
            raise EnvironmentBuildError(
                f"recording needs an encoder of videos: pip install 'remuda[video]' ({error})"
            ) from error
        self._folder = folder
        self._film: Generator[None, bytes | None, None] | None = None
        self.title = "policy"
        """Of the files to come: whose policy plays."""
        self.written: list[Path] = []
        """All files, in the order of their episodes."""
        self._episode = 0

    def begin(self, title: str) -> None:
        """Count the episodes of another policy, from 0."""
        self.title, self._episode = title, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode and its file."""
        self.cut()
        observation, info = super().reset(seed=seed, options=options)
        self._shoot()
        return observation, info

    def step(self, action: Any) -> tuple[Array, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one step and one picture; the end of the episode is that of its file."""
        outcome = super().step(action)
        self._shoot()
        if outcome[2] or outcome[3]:
            self.cut()
        return outcome

    def close(self) -> None:
        """Finish the file under way, too."""
        self.cut()
        super().close()

    def cut(self) -> None:
        """Finish the file of the episode under way; it is not going on."""
        if self._film is not None:
            self._film.close()
            self._film = None

    def _shoot(self) -> None:
        picture: object = self.env.render()
        if not (isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3):
            found = getattr(picture, "shape", type(picture).__name__)
            raise EnvironmentBuildError(f"{self.env} rendered {found}, and a picture is an array [height, width, 3]")
        frame = np.ascontiguousarray(picture, np.uint8)
        if self._film is None:
            self._film = self._begin(height=frame.shape[0], width=frame.shape[1])
        self._film.send(cast("bytes", frame))

    def _begin(self, *, height: int, width: int) -> Generator[None, bytes | None, None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self.title}_episode_{self._episode}.mp4"
        self._episode += 1
        self.written.append(path)
        film: Generator[None, bytes | None, None] = self._ffmpeg.write_frames(
            str(path),
            (width, height),
            fps=self.metadata.get("render_fps", _USUAL_FPS),
            macro_block_size=2,  # players want even sides
            ffmpeg_log_level="error",
        )
        film.send(None)
        return film
