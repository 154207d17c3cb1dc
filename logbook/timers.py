"""Hierarchical timers: the seconds of a process by task and by wait."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from remuda.storage.atomic import write_text

SEPARATOR: Final = "/"
"""Separator of an outer and an inner block in flat names: `collect/act`."""

Flat = dict[str, tuple[int, float]]
"""Count of entries and seconds by flat name, including the seconds of inner blocks."""


class Timers:
    """Times named blocks of one thread; a block inside another becomes its child.

    ```
    with timers("collect"):
        with timers("act"):
            ...
    ```

    A block costs about half a microsecond, so it may be used for every step of a vector.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` returns seconds."""
        self.clock = clock
        self._root = Timer(self)
        self.current = self._root
        self._began_s = clock()

    def __call__(self, name: str) -> Timer:
        """Return the block of this name inside the current block, for use with `with`."""
        inner = self.current.inner
        timer = inner.get(name)
        if timer is None:
            timer = inner[name] = Timer(self, self.current)
        return timer

    @property
    def elapsed_s(self) -> float:
        """Seconds since the timers were made."""
        return self.clock() - self._began_s

    def flat(self) -> Flat:
        """Return all blocks by flat name, outer blocks before inner blocks, with the seconds of unfinished blocks so
        far."""
        found: Flat = {}
        now_s = self.clock()

        def add(inner: Mapping[str, Timer], prefix: str) -> None:
            for name, timer in inner.items():
                path = prefix + name.replace(SEPARATOR, "|")
                found[path] = (timer.count, timer.seconds(now_s))
                add(timer.inner, path + SEPARATOR)

        add(self._root.inner, "")
        return found


@dataclass
class Timer:
    """A block: entered `count` times."""

    owner: Timers
    outer: Timer | None = None
    count: int = 0
    total_s: float = 0.0
    inner: dict[str, Timer] = field(default_factory=dict[str, "Timer"])
    _entered_s: float | None = None

    def seconds(self, now_s: float) -> float:
        """Return the seconds spent until now."""
        return self.total_s + (0.0 if self._entered_s is None else now_s - self._entered_s)

    def __enter__(self) -> None:
        owner = self.owner
        owner.current = self
        self.count += 1
        self._entered_s = owner.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        owner = self.owner
        assert self.outer is not None, "the root is never entered"
        assert self._entered_s is not None, "only what was entered is left"
        self.total_s += owner.clock() - self._entered_s
        self._entered_s = None
        owner.current = self.outer


def add(left: Flat, right: Flat) -> Flat:
    """Add both, as if one process had done the work of both."""
    total = dict(left)
    for name, (count, seconds) in right.items():
        before = total.get(name, (0, 0.0))
        total[name] = (before[0] + count, before[1] + seconds)
    return total


def write_timers(path: Path, document: Mapping[str, object]) -> None:
    """Write timers.json, all or nothing. Raises OSError."""
    write_text(path, json.dumps(document, indent=1) + "\n", durable=False)


def tree(flat: Flat, elapsed_s: float) -> dict[str, object]:
    """Return the content of timers.json: every block with its share of the outer block, and `self_s`, its time outside
    of inner blocks."""
    inner: dict[str, Flat] = {}
    own: Flat = {}
    for name, seen in flat.items():
        first, _, rest = name.partition(SEPARATOR)
        inner.setdefault(first, {})
        if rest:
            inner[first][rest] = seen
        else:
            own[first] = seen
    blocks: dict[str, object] = {}
    timed_s = 0.0
    for name, below in inner.items():
        count, seconds = own.get(name, (0, sum(s for path, (_, s) in below.items() if SEPARATOR not in path)))
        timed_s += seconds
        block = tree(below, seconds)
        blocks[name] = {"count": count, "share": round(seconds / elapsed_s, 4) if elapsed_s > 0 else 0.0, **block}
    found: dict[str, object] = {"total_s": round(elapsed_s, 6), "self_s": round(max(elapsed_s - timed_s, 0.0), 6)}
    return found | ({"blocks": blocks} if blocks else {})
