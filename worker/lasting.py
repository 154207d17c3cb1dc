"""Imports whose objects last as long as the process, and are never taken for garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

NEW_OBJECTS = 20_000
"""Between two looks for cyclic garbage, of which there is hardly any: so many as the messages of many turns leave. With
Python's own 700 every turn of a busy loop has one."""


@contextmanager
def lasting() -> Generator[None]:
    """Import within it what the process needs to its end; for processes of our own, not for a caller's.

    torch makes some 400 000 objects when it is imported. Python's collector looks at all of them ten times on the way,
    now and then while the process works, and once more when it ends: together half a second of a short run. It is off
    meanwhile, and what is there afterwards is set aside.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Look for cyclic garbage seldom within it, and never among what is there already; for loops that answer many."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
