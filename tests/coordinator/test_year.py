"""A year of a service: what it keeps in memory and on disk, and what its turns cost, stays level.

Bounds that take a year to be reached are lowered for the short form, which runs by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from remuda.coordinator import assignments, catalog, connections, membership
from remuda.coordinator.disk import runs_folder
from remuda.tests.coordinator.year import Year

DEATHS_PER_STEP = 0.6
MARGIN = 1.25
"""By which the peak of the last fifth of the year may exceed the peak of the first two fifths."""
BYTES_PER_RUN = 1_500
"""Of one that is over, at most."""
LOWERED = {
    (catalog, "FINISHED_KEPT"): 5,
    (runs_folder, "FINISHED_SHOWN"): 5,
    (assignments, "LEASES_KEPT"): 30,
    (membership, "LOST_KEPT"): 5,
    (connections, "EXPIRES_S"): 2.0,
    (connections, "EXPIRY_INTERVAL_S"): 0.5,
}
YEARS_RUNS, YEARS_LEASES, YEARS_DEATHS = 10_000, 40_000, 20_000
RESTARTS = pytest.mark.parametrize("restarts", [False, True], ids=["one coordinator", "many coordinators"])


@RESTARTS
def test_a_short_year(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool) -> None:
    for (module, name), bound in LOWERED.items():
        monkeypatch.setattr(module, name, bound)
    year = live_through(tmp_path, runs=60, samples=15, restarts=restarts)
    assert year.leases > 180
    assert year.deaths > 35


@pytest.mark.faults_long
@pytest.mark.timeout(3_600)
@RESTARTS
def test_a_year(tmp_path: Path, restarts: bool) -> None:
    year = live_through(tmp_path, runs=YEARS_RUNS, samples=100, restarts=restarts)
    assert year.leases > YEARS_LEASES
    assert year.deaths > YEARS_DEATHS


def live_through(folder: Path, *, runs: int, samples: int, restarts: bool) -> Year:
    """So many runs that end, with so many looks at all sizes on the way."""
    seen: list[dict[str, int]] = []
    with closing(Year(folder)) as year:
        for sample in range(1, samples + 1):
            while year.runs < runs * sample // samples:
                year.go_on(DEATHS_PER_STEP)
            seen.append(year.sizes(restart=restarts))
            if sample in (samples // 10, samples):
                came = f"{year.runs} runs {dict(year.ends)}, {year.leases} leases, {year.deaths} deaths"
                print(f"after {came}, {year.crashes} restarts: {seen[-1]}")
        bytes_per_run = year.bytes_per_run()
    peaks = fifths(seen)
    print(f"a row of {bytes_per_run:.0f} bytes for each run; peaks of each fifth: {peaks}")
    assert year.ends["finished"] > runs / 2
    assert bytes_per_run < BYTES_PER_RUN
    grown = {name: each for name, each in peaks.items() if each[-1] > MARGIN * max(each[:2])}
    assert not grown, "grows with the years; peaks of each fifth"
    return year


def fifths(sizes: Sequence[dict[str, int]]) -> dict[str, list[int]]:
    """The largest of each size in each fifth of the year."""
    length = len(sizes) // 5
    return {
        name: [max(each[name] for each in sizes[start : start + length]) for start in range(0, len(sizes), length)]
        for name in sizes[0]
    }
