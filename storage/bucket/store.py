"""Objects of a bucket, through fsspec: reads, writes and exclusive creations, with bounded patience."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Protocol, TypeVar, cast

from remuda.storage.bucket.address import BucketError

_T = TypeVar("_T")
_FINAL = (FileNotFoundError, FileExistsError, PermissionError, NotImplementedError)
"""Errors of lasting causes. After other errors, such as a busy store, requests are repeated."""
_CLOCK = "clock"
"""Name of an object that is written to learn the store's time."""
_AT_ONCE = 8
"""Objects under way at the same time."""


class Objects(Protocol):
    """The part of an fsspec file system that a store uses."""

    def cat_file(self, path: str) -> bytes:
        """Return the content of an object. Raises FileNotFoundError."""
        ...

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> object:
        """Write an object; with mode `create` only a new one. Raises FileExistsError."""
        ...

    def info(self, path: str) -> dict[str, object]:
        """Return facts about an object, among them its `size`. Raises FileNotFoundError."""
        ...

    def modified(self, path: str) -> datetime:
        """Return the time of the last write, with its zone. Raises FileNotFoundError; NotImplementedError or KeyError
        where the store keeps no times."""
        ...

    def find(self, path: str) -> list[str]:
        """List the objects below a path; the list may be out of date."""
        ...

    def rm_file(self, path: str) -> object:
        """Delete an object. Raises FileNotFoundError."""
        ...


class StoreError(BucketError):
    """The store did not do what was asked within the deadline."""


class DeniedError(StoreError):
    """The store's keys do not permit the request."""


@dataclass(frozen=True)
class Retries:
    """Repetition of failed requests."""

    deadline_s: float = 60.0
    """Seconds after which a request counts as failed."""
    first_pause_s: float = 0.2
    longest_pause_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Store:
    """The objects below an address. For any thread."""

    def __init__(self, objects: Objects, root: str, retries: Retries) -> None:
        """`root` is the path of the run in the file system `objects`."""
        self._objects, self._root, self._retries = objects, root.rstrip("/"), retries

    @classmethod
    def at(cls, address: str, retries: Retries) -> Store:
        """Open the store of an address. Raises BucketError if no package for such addresses is installed."""
        try:
            core = import_module("fsspec.core")
            # s3fs asks for the size before a read in pieces, and if that fails, a list, which may be late
            options: dict[str, dict[str, object]] = {"file": {"auto_mkdir": True}, "s3": {"max_concurrency": 1}}
            more = options.get(address.partition(":")[0], {})
            # what is not on a list that s3fs keeps does not exist for s3fs
            objects, root = core.url_to_fs(address, use_listings_cache=False, **more)
        except (ImportError, ValueError) as error:
            raise BucketError(
                f"{address}: {error}. Addresses at s3:// need `pip install 'remuda[bucket]'`; others the package of "
                "fsspec for their store, such as gcsfs for gs:// and adlfs for az://"
            ) from error
        return cls(cast("Objects", objects), cast("str", root), retries)

    def above(self) -> Iterator[tuple[Store, str]]:
        """Yield the stores of the addresses above, nearest first, each with the path from there to this address."""
        root, below = self._root, ""
        while "/" in root.lstrip("/"):
            root, _, name = root.rpartition("/")
            below = f"{name}/{below}"
            yield Store(self._objects, root, self._retries), below

    def read(self, name: str) -> bytes | None:
        """Return the content of an object; None without it. Raises StoreError."""
        try:
            return bytes(self._tried(name, lambda: self._objects.cat_file(self._path(name))))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write an object, and compare the size in the store. Raises StoreError."""

        def put() -> None:
            self._objects.pipe_file(self._path(name), data)
            size = self._size(name)
            if size != len(data):
                raise OSError(f"{size} of {len(data)} bytes arrived")

        self._tried(name, put)

    def size(self, name: str) -> int | None:
        """Return the size of an object; None without it. Raises StoreError."""
        return self._tried(name, lambda: self._size(name))

    def age_s(self, name: str) -> float | None:
        """Return the seconds since the last write of an object, by the store's own clock; None if the store does not
        tell. Writes and deletes another object, whose time is the present. Raises StoreError."""
        self.write(_CLOCK, b"")
        written, now = self._written(name), self._written(_CLOCK)
        self.delete([_CLOCK])
        return None if written is None or now is None else (now - written).total_seconds()

    def create(self, name: str, data: bytes) -> bool:
        """Write an object that must not exist; False if another content is there. Of several writers at most one has
        success, where the store has conditional writes. Raises StoreError."""
        with contextlib.suppress(FileExistsError):  # maybe by the first of two tries, whose answer was lost
            self._tried(name, lambda: self._objects.pipe_file(self._path(name), data, mode="create"))

        def seen() -> bytes:
            content = self.read(name)
            if content is None:
                raise OSError("it was written, and is not there to read")
            return content

        return self._tried(name, seen) == data

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; missing objects are fine. Raises StoreError."""

        def remove(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._tried(name, lambda: self._objects.rm_file(self._path(name)))

        self.all_of(remove, names)

    def listed(self, folder: str) -> list[str]:
        """Return the names of objects below `folder`, as a list that may be out of date. Raises StoreError."""
        try:
            found = self._tried(folder, lambda: self._objects.find(self._path(folder)))
        except FileNotFoundError:
            return []
        start = self._root.lstrip("/") + "/"
        return [path.lstrip("/").removeprefix(start) for path in found]

    def all_of(self, act: Callable[[_T], object], items: Iterable[_T]) -> None:
        """Call `act` with every item, several at the same time; raises the first error."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(act, items):
                pass

    def _size(self, name: str) -> int | None:
        try:
            return cast("int", self._objects.info(self._path(name))["size"])
        except FileNotFoundError:
            return None

    def _written(self, name: str) -> datetime | None:
        def asked() -> datetime | None:
            with contextlib.suppress(FileNotFoundError, NotImplementedError, KeyError):
                return self._objects.modified(self._path(name))
            return None

        return self._tried(name, asked)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _tried(self, name: str, act: Callable[[], _T]) -> _T:
        """Try again after growing pauses until the deadline. Raises StoreError, and the errors of _FINAL."""
        retries = self._retries
        end_s, pause_s = retries.clock() + retries.deadline_s, retries.first_pause_s
        while True:
            try:
                return act()
            except PermissionError as error:
                raise DeniedError(f"{self._path(name)}: no permission ({error}); look at the store's keys") from error
            except _FINAL:
                raise
            except Exception as error:  # each store's library has errors of its own
                if "Credentials" in type(error).__name__:  # of botocore: no keys, or a part of them
                    raise StoreError(f"{self._path(name)}: {error}; give the store's keys, see buckets.md") from error
                if retries.clock() + pause_s > end_s:
                    reason = f"{type(error).__name__}: {error}"
                    raise StoreError(f"{self._path(name)}: tried for {retries.deadline_s:g} s: {reason}") from error
            retries.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that writers do not come in step
            pause_s = min(2 * pause_s, retries.longest_pause_s)
