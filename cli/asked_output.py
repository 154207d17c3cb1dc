"""Standard output for what was asked for, and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Generator
from typing import TextIO


@contextlib.contextmanager
def asked_output(*, alone: bool = True) -> Generator[TextIO]:
    """Standard output, while the body runs. `alone`: only what is written to the stream given comes there; what is
    printed otherwise, by an environment's code in whatever language and process, goes to standard error."""
    if not alone:
        yield sys.stdout
        return
    with contextlib.ExitStack() as stack:
        stream = sys.stdout
        if _descriptor(stream) == 1:
            stream = stack.enter_context(_first_descriptor_is_error())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield stream


@contextlib.contextmanager
def _first_descriptor_is_error() -> Generator[TextIO]:
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding=sys.stdout.encoding, closefd=False) as stream:
            yield stream
    finally:
        ctypes.CDLL(None).fflush(None)  # what C code has printed, and still keeps in its buffer
        os.dup2(kept, 1)
        os.close(kept)


def _descriptor(stream: TextIO) -> int | None:
    """None where it is none of the operating system's."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
