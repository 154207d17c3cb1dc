"""A bucket in memory that is busy, tears what it takes, and answers late."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import cast

from remuda.storage.bucket.store import Retries, Store


class FaultyObjects:
    """Objects by path, behind faults: each request fails or misbehaves with some probability."""

    def __init__(self, chance: random.Random, *, rate: float = 0.0) -> None:
        self.content: dict[str, bytes] = {}
        self.now_s = 0.0
        """The bucket's clock."""
        self.written_s: dict[str, float] = {}
        self.rate = rate
        self.down = False
        """True: every request fails."""
        self._chance = chance
        self._unseen: dict[str, int] = {}

    def settle(self) -> None:
        """Answer correctly, and show everything that was written."""
        self.rate = 0.0
        self._unseen.clear()

    def cat_file(self, path: str) -> bytes:
        self._busy()
        if self._unseen.get(path, 0) > 0:
            self._unseen[path] -= 1
            raise FileNotFoundError(path)
        return self._there(path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        self._busy()
        if mode == "create" and path in self.content:
            raise FileExistsError(path)
        self.written_s[path] = self.now_s
        if self._bad() and mode != "create":
            self.content[path] = value[: len(value) // 2]
            if self._bad():
                return  # and nobody is told
            raise OSError("torn")
        self.content[path] = bytes(value)
        if PurePosixPath(path).name != "owner.json" and self._bad():
            self._unseen[path] = 2
        if self._bad():
            raise OSError("503: the answer is lost, the object is there")

    def info(self, path: str) -> dict[str, object]:
        self._busy()
        return {"size": len(self._there(path))}

    def modified(self, path: str) -> datetime:
        self._busy()
        self._there(path)
        return datetime.fromtimestamp(self.written_s[path], UTC)

    def find(self, path: str) -> list[str]:
        self._busy()
        names = sorted(name for name in self.content if name.startswith(f"{path}/"))
        return [name for name in names if not self._bad()]

    def rm_file(self, path: str) -> None:
        self._busy()
        self._there(path)
        del self.content[path]

    def _there(self, path: str) -> bytes:
        if path not in self.content:
            raise FileNotFoundError(path)
        return self.content[path]

    def _busy(self) -> None:
        if self.down or self._bad():
            raise OSError("503 Slow Down")

    def _bad(self) -> bool:
        return self._chance.random() < self.rate


class Clock:
    """Seconds that pass only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def store_of(objects: FaultyObjects, root: str = "bucket/run") -> Store:
    """A store of these objects whose pauses take no time."""
    clock = Clock()
    return Store(cast("object", objects), root, Retries(60.0, clock=lambda: clock.now_s, sleep=clock.sleep))  # type: ignore[arg-type]
