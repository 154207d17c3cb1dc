"""What is promised of lasting imports: no garbage is looked for meanwhile, nor among what was imported afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from remuda.tests.patience import HANG_S
from remuda.worker.process import gc_frozen


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_meanwhile_and_then_as_it_was(enabled: bool) -> None:
    was_enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    (gc.enable if enabled else gc.disable)()
    try:
        with gc_frozen():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() > frozen
    finally:
        if not frozen:
            gc.unfreeze()
        (gc.enable if was_enabled else gc.disable)()


def test_what_was_imported_is_never_looked_at_again_and_new_garbage_is() -> None:
    program = """
import gc
from remuda.worker.process import gc_frozen
with gc_frozen():
    import msgspec, numpy
    objects = len(gc.get_objects())
assert len(gc.get_objects()) < objects / 10
class Loop:
    def __init__(self): self.me = self
    def __del__(self): print("gone")
Loop()
gc.collect()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout == "gone\n"
