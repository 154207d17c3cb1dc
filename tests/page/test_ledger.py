"""How the chunks of a run fared: from its coordinator while that answers, else from the run's time series."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import cast

import pytest

from remuda.client.client import Client
from remuda.logbook.series import Ledger
from remuda.page.coordinator_link import CoordinatorLink
from remuda.page.herd import LedgerView, ledger_view
from remuda.page.views import Views
from remuda.tests.page.folders import EXPERIMENT, evaluation, interval, run_folder, write_series
from remuda.tests.page.statuses import experiment, status
from remuda.wire.messages import LedgerCounts, Status

COUNTS = LedgerCounts(accepted=10, repeated=2, refused=1, refused_env_steps=64, lost_collectors=3)


class Coordinator:
    """Answers with one status."""

    def __init__(self, answer: Status) -> None:
        self.answer = answer

    def status(self) -> Status:
        return self.answer

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def views_of(tmp_path: Path) -> Generator[Callable[[Status | None], Views]]:
    made: list[Views] = []

    def make(answer: Status | None) -> Views:
        file = None if answer is None else tmp_path / "connection.json"
        link = CoordinatorLink(file, lambda _: cast("Client", Coordinator(cast("Status", answer))))
        made.append(Views(tmp_path / "runs", link))
        return made[-1]

    yield make
    for views in made:
        views.close()


def test_what_may_be_lost_is_what_was_refused_and_what_collectors_had() -> None:
    assert ledger_view(COUNTS, 640) == LedgerView(
        accepted_chunks=10,
        accepted_env_steps=640,
        repeated_chunks=2,
        refused_chunks=1,
        refused_env_steps=64,
        lost_collectors=3,
        lost_chunks_most=7,
    )


def test_a_stored_run_shows_that_of_its_newest_interval(
    tmp_path: Path, views_of: Callable[[Status | None], Views]
) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    views = views_of(None)
    assert views.run("a").ledger is None, "no interval is over"
    ledgers = [Ledger(accepted=n, repeated=0, refused=0, refused_env_steps=0, lost_collectors=1) for n in range(3)]
    write_series(folder, [interval(60.0 * (n + 1), ledger=each) for n, each in enumerate(ledgers)])
    write_series(folder, [evaluation(200.0, 5.0)])
    assert views.run("a").ledger == ledger_view(ledgers[-1], int(8 * 180.0))


def test_a_run_of_an_earlier_version_shows_none(tmp_path: Path, views_of: Callable[[Status | None], Views]) -> None:
    write_series(run_folder(tmp_path / "runs", "a"), [interval(60.0)])
    assert views_of(None).run("a").ledger is None


def test_a_run_that_goes_on_shows_what_its_coordinator_says(
    tmp_path: Path, views_of: Callable[[Status | None], Views]
) -> None:
    folder = run_folder(tmp_path / "runs", "a")
    write_series(folder, [interval(60.0)])
    live = experiment(id=EXPERIMENT, run_dir=str(folder.root), ledger=COUNTS)
    assert views_of(status([live])).run("a").ledger == ledger_view(COUNTS, live.env_step)
