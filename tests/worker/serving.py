"""Something that serves on a thread of its own."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from remuda.tests.patience import HANG_S


class Serving(ABC):
    """A context manager that serves inside of its block."""

    def __init__(self) -> None:
        self._stop = False
        """Whether the block was left."""
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        self._thread.join(HANG_S)
        assert not self._thread.is_alive(), "it still serves"
        self._let_go()

    @abstractmethod
    def _serve(self) -> None:
        """In the thread, until `_stop`."""

    @abstractmethod
    def _let_go(self) -> None:
        """Let go of sockets, once nobody is served any more."""
