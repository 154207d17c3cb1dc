"""Real herds, as in the tests of faults."""

from __future__ import annotations

from remuda.tests.faults.conftest import herds

__all__ = ["herds"]
