"""Keeps standard output for the answer of a command, and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Generator
from typing import TextIO


@contextlib.contextmanager
def asked_output(*, alone: bool = True) -> Generator[TextIO]:
    """Yield a stream to standard output. With `alone`, only what is written to this stream goes there; everything else
    that is printed in the body, also by environments in C code and in child processes, goes to standard error."""
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
        ctypes.CDLL(None).fflush(None)  # what C code has printed may still be in its buffer
        os.dup2(kept, 1)
        os.close(kept)


def _descriptor(stream: TextIO) -> int | None:
    """The file descriptor; None for a stream without one."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
