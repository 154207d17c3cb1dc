"""Herds for the tests of faults."""

from __future__ import annotations

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
