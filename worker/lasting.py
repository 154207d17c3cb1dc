"""Imports whose objects last as long as the process, and are never taken for garbage."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


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
