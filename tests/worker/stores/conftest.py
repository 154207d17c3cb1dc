"""What the tests of stores share."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.tests.worker.stores.served import Ranch


@pytest.fixture
def ranch(tmp_path: Path) -> Generator[Ranch]:
    """A runs folder with one run; nobody serves it yet."""
    made = Ranch(tmp_path)
    yield made
    made.close()
