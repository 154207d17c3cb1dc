"""TensorBoard's view: one event file per folder, every value over train_iter and over env_step.

A resumed run must show each step once, but TensorBoard's own mark for that (purge all above a step) knows one axis
and these curves have three. So opening a folder that holds events rewrites them: what lies beyond the resumed point is
left out, each curve judged on its own axis; the rest goes into one new file, which this writer continues, and the
older files are removed. A restart mark at its head makes a TensorBoard that is watching forget what it read before.
"""

from __future__ import annotations

import math
import numbers
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from remuda.logbook.event_file import StoredEvent, read_events, restart_event, scalar_event, version_event
from remuda.logbook.tables import Value
from remuda.storage.atomic import replacing
from remuda.wire.messages import Counters

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\..*")
_FLOAT32_MAX = 3.4028234e38


class EventWriter:
    """Writes the event file of one folder; it must be the folder's only writer.

    Each call is one write to the operating system, and raises OSError where that fails. `resumed` says up to where
    the events already there still hold; None keeps them all.
    """

    def __init__(
        self, folder: Path, *, resumed: Counters | None = None, now_s: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._now_s = now_s
        self._begin(resumed)

    def rewind(self, train_iter: int) -> None:
        """Leave out what was shown beyond this update: a learner goes on from there, and will show it again."""
        self._file.close()
        self._begin(Counters(env_step=sys.maxsize, train_iter=train_iter, wall_s=math.inf))

    def newest_step(self, tag: str) -> int:
        """The highest step at which this tag was shown: by seconds until now, on other axes when the file was opened or
        rewound; -1 for none."""
        return self._newest.get(tag, -1)

    def _begin(self, resumed: Counters | None) -> None:
        folder, now_s = self._folder, self._now_s
        self._newest: dict[str, int] = {}
        old = _event_files(folder)
        # TensorBoard reads a folder's files in order of name and moves on only to later ones.
        stamp = max(int(now_s()), _stamp(old[-1]) + 1 if old else 0)
        self.path = folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}"
        with replacing(self.path, durable=False) as temporary:
            self._file = open(temporary, "xb", buffering=0)  # noqa: SIM115  (stays open under its final name)
            self._file.write(version_event(now_s()))
            if old:
                self._file.write(restart_event(now_s()))
            for event in _still_valid(old, resumed):
                self._file.write(event.frame)
                self._newest |= {tag: max(event.step, self._newest.get(tag, -1)) for tag in event.tags}
        for path in old:
            path.unlink(missing_ok=True)

    def scalars(self, prefix: str, values: Mapping[str, Value], *, train_iter: int, env_step: int) -> None:
        """Add `<prefix>_iter/<key>` at train_iter and `<prefix>_step/<key>` at env_step for every finite number."""
        self._write(
            (train_iter, _tagged(f"{prefix}_iter", values)),
            (env_step, _tagged(f"{prefix}_step", values)),
        )

    def throughput(self, prefix: str, values: Mapping[str, Value], *, wall_s: float) -> None:
        """Add `<prefix>_sec/<key>` at the whole seconds since the run began; a second that has its point gets no other
        (a run that ends right after a table has one more)."""
        second, all_ = int(wall_s), _tagged(f"{prefix}_sec", values)
        tagged = {tag: value for tag, value in all_.items() if self.newest_step(tag) < second}
        self._write((second, tagged))
        self._newest |= dict.fromkeys(tagged, second)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, *events: tuple[int, dict[str, float]]) -> None:
        now_s = self._now_s()
        frames = b"".join(scalar_event(now_s, step, scalars) for step, scalars in events if scalars)
        if frames and self._file.write(frames) != len(frames):
            raise OSError(f"{self.path}: the disk took only part of an event")


def _tagged(group: str, values: Mapping[str, Value]) -> dict[str, float]:
    numeric = {key: float(value) for key, value in values.items() if isinstance(value, numbers.Real)}
    return {f"{group}/{key}": value for key, value in numeric.items() if abs(value) <= _FLOAT32_MAX}


def _event_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _EVENT_FILE.fullmatch(path.name))


def _stamp(path: Path) -> int:
    found = _EVENT_FILE.fullmatch(path.name)
    return int(found.group(1)) if found else 0


def _still_valid(files: list[Path], resumed: Counters | None) -> Iterator[StoredEvent]:
    """Yield the events to keep. The values of one event share their axis, so the first tag decides for all."""
    for path in files:
        for event in read_events(path.read_bytes()):
            if event.tags and event.step <= _last_step(event.tags[0], resumed):
                yield event


def _last_step(tag: str, resumed: Counters | None) -> float:
    if resumed is None:
        return math.inf
    axis = tag.partition("/")[0].rpartition("_")[2]
    return {"iter": resumed.train_iter, "step": resumed.env_step, "sec": resumed.wall_s}.get(axis, math.inf)
