"""Herds for the tests of faults, and what every one of these tests ends with."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from remuda.tests.faults.herd import Herd
from remuda.tests.faults.network import Between

Herds = Callable[..., Herd]


@pytest.fixture
def herds(tmp_path: Path) -> Generator[Herds]:
    """Makes herds in folders of their own; ends what a test has left running."""
    made: list[Herd] = []

    def make(
        limits: str | None = None,
        root: Path | None = None,
        env: dict[str, str] | None = None,
        network: Between | None = None,
        coordinator_timeout_s: float | None = None,
    ) -> Herd:
        place = root or tmp_path / f"herd{len(made)}"
        made.append(Herd(place, limits, env or {}, coordinator_timeout_s, network))
        return made[-1]

    yield make
    for herd in made:
        herd.end()


@pytest.fixture(autouse=True)
def nothing_left_in_this_process() -> Generator[None]:
    """No descriptor, no thread."""
    before = _open()
    yield
    assert _open() == before


def _open() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()
