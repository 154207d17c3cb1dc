"""What tests of the coordinator's files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.coordinator.disk.run_folders import RunFolders


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[RunFolders]:
    opened = RunFolders(tmp_path / "runs")
    yield opened
    opened.close()
