"""What tests of the coordinator's files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.coordinator.disk.run_folders import RunBooks


@pytest.fixture
def books(tmp_path: Path) -> Iterator[RunBooks]:
    opened = RunBooks(tmp_path / "runs")
    yield opened
    opened.close()
