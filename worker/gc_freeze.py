"""Keeps Python's garbage collector away from objects that live as long as the process, such as imported modules."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

NEW_OBJECTS = 20_000
"""New objects between two collections of cyclic garbage, of which there is hardly any. With Python's default of 700
there would be a collection in every turn of a busy loop."""


@contextmanager
def gc_frozen() -> Generator[None]:
    """Import in the body what the process needs until it ends; only for Remuda's own processes.

    Importing torch makes about 400,000 objects. Python's garbage collector visits all of them ten times during the
    import, sometimes while the process works, and again when it ends: half a second of a short run in total. So the
    collector is off in the body, and all objects that exist after it are excluded from collection (gc.freeze).
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
    """Collect cyclic garbage rarely in the body, and never among objects that exist already; for the loops of
    servers."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
