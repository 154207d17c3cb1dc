"""GIFs as a player shows them."""

from __future__ import annotations

import importlib
import subprocess
from typing import Any, cast

import numpy as np

from remuda.tests.patience import HANG_S


def pictures_of(gif: bytes, *, height: int, width: int) -> np.ndarray:
    """Pictures uint8 [n, height, width, 3]."""
    ffmpeg = cast("str", cast("Any", importlib.import_module("imageio_ffmpeg")).get_ffmpeg_exe())
    raw = [ffmpeg, "-loglevel", "error", "-i", "-", "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    frames = subprocess.run([*raw, "-"], input=gif, capture_output=True, check=True, timeout=HANG_S).stdout
    return np.frombuffer(frames, np.uint8).reshape(-1, height, width, 3)


def delays_s(gif: bytes) -> list[float]:
    """How long each picture stays, as its graphic control extension says."""
    found: list[float] = []
    place = 0
    while (place := gif.find(b"\x21\xf9\x04", place)) >= 0:
        found.append(int.from_bytes(gif[place + 4 : place + 6], "little") / 100)
        place += 8
    return found
