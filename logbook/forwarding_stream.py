"""A text stream in front of another stream, such as standard output."""

from __future__ import annotations

import io
from typing import TextIO


class ForwardingStream(io.TextIOBase):
    """Looks like the stream behind it: same descriptor, terminal and encoding. A subclass defines what `write` does."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def writable(self) -> bool:
        """Always true."""
        return True

    def fileno(self) -> int:
        """The descriptor of the stream behind it. Raises OSError if that has none."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Whether the stream behind it is a terminal."""
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream behind it."""
        return self._stream.encoding
