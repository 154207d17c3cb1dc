"""Lists the recorded episodes of a run, or plays one of them again: a process of its own that prints lines of JSON."""

from __future__ import annotations

import argparse
import base64
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from remuda.client.episodes import Episode, Record, read_record
from remuda.client.replaying import Outcome, Replayer, Step, blamed, watch
from remuda.environments.films import Pictures, draw_unseen
from remuda.environments.spaces import Array

MOST_WORST, MOST_BEST = 900, 100
"""Episodes in the list."""
_MOST_NUMBERS = 1_000
"""An observation of more numbers is told by its shape."""


class EpisodeView(Struct, frozen=True):
    """A counted episode."""

    id: str
    return_mean: float
    length: int
    versions: tuple[int, int]


class EpisodeList(Struct, frozen=True):
    """The worst episodes, then the best."""

    episodes: list[EpisodeView]
    counted: int
    notes: Sequence[str]
    """Gaps in the record."""


class Progress(Struct, frozen=True):
    """Slots played of the copy, at each hundredth."""

    played: int
    of: int


class StepView(Struct, frozen=True):
    """A step, see `Step`; an observation may be a text about its shape."""

    number: int
    actions: Mapping[str, object]
    rewards: Mapping[str, float]
    observations: Mapping[str, object]
    policy_version: int
    picture: str | None
    """A PNG file in base64; None where the environment does not render."""


class Verdict(Struct, frozen=True):
    """The comparison with the record, after the last step."""

    difference: str | None


class Failed(Struct, frozen=True):
    """The reason why nothing follows."""

    error: str


def main() -> None:
    """Print a line for the list, or lines for progress, steps and verdict; a failure is the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--episode", help="plays this one again")
    arguments = parser.parse_args()
    output = os.dup(1)
    os.dup2(2, 1)  # environments print, too

    def say(line: Struct) -> None:
        rest = memoryview(msgspec.json.encode(line) + b"\n")
        while rest:
            rest = rest[os.write(output, rest) :]

    try:
        record = read_record(arguments.run_dir)
        if arguments.episode is None:
            say(listed(record))
        else:
            _play(record, arguments.episode, say)
    except Exception as error:  # the environment may raise anything
        known = type(error).__module__.startswith("remuda.")
        say(Failed(str(error) if known else f"the environment failed: {type(error).__name__}: {error}"))


def listed(record: Record) -> EpisodeList:
    """Return the counted episodes, the worst first."""
    counted = sorted((one for one in record.episodes if one.counted), key=lambda one: one.mean_return)
    best = max(len(counted) - MOST_BEST, MOST_WORST)
    shown = [EpisodeView(one.id, one.mean_return, one.length, one.versions) for one in counted]
    return EpisodeList(shown[:MOST_WORST] + shown[best:], len(counted), record.notes)


def _play(record: Record, id: str, say: Callable[[Struct], None]) -> None:
    episode = next((one for one in record.episodes if one.id == id), None)
    if episode is None:
        return say(Failed(f"there is no episode {id[:40]}"))
    draw_unseen()
    begun: list[int] = []
    try:
        outcome = _played(record, episode, say, begun, "rgb_array")
    except Exception:  # the environment does not render here
        if begun:
            raise
        outcome = _played(record, episode, say, begun, None)
    return say(Verdict(outcome.difference and f"{outcome.difference}. {blamed(record)}"))


def _played(
    record: Record, episode: Episode, say: Callable[[Struct], None], begun: list[int], mode: str | None
) -> Outcome:
    """Play an episode, with pictures if a mode is given. The numbers of its steps are appended to `begun`."""
    cameras: list[Pictures] = []
    of = episode.end + 1

    def camera(rendered: Any) -> Pictures:
        cameras.append(Pictures(rendered))
        return cameras[0]

    def stepped(step: Step) -> None:
        seen = {agent: _shown(one) for agent, one in step.observations.items()}
        picture = base64.b64encode(png(cameras[0].pictures.pop())).decode() if cameras else None
        say(StepView(step.number, step.actions, step.rewards, seen, step.policy_version, picture))
        begun.append(step.number)

    def progressed(played: int) -> None:
        if 100 * played // of > 100 * (played - 1) // of:
            say(Progress(played, of))

    return watch(
        Replayer(record, render_mode=mode),
        episode,
        stepped,
        camera=None if mode is None else camera,
        progressed=progressed,
    )


def _shown(observation: Any) -> object:
    shape = np.shape(observation)
    return f"{' × '.join(map(str, shape))} numbers" if np.prod(shape) > _MOST_NUMBERS else observation


def png(picture: Array) -> bytes:
    """Encode a picture uint8 [height, width, 3] as a PNG file: each row as the difference from the row above."""
    height, width, _ = picture.shape
    rows = np.diff(picture, axis=0, prepend=np.zeros_like(picture[:1])).reshape(height, -1)
    up = np.full((height, 1), 2, np.uint8)
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(np.hstack([up, rows]).tobytes(), 4)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


if __name__ == "__main__":
    main()
