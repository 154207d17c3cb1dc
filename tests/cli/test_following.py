"""`remuda evaluate --follow` in one process: which runs are over, and which only wait."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.cli import playing
from remuda.cli.chosen_policy import EvaluateOptions, PlayedPolicies
from remuda.cli.playing import EpisodeView, follow_run
from remuda.storage.run_folder import RunFolder
from remuda.tests.policy.cases import dqn
from remuda.tests.policy.files.saved_runs import save
from remuda.training.journal import RunJournal


class Watching(EpisodeView):
    """Only notes what it would play."""

    def __init__(self, run_dir: Path) -> None:
        self.said = io.StringIO()
        self.played: list[int | None] = []
        super().__init__(EvaluateOptions(run_dir=run_dir, follow=True), self.said)

    def play(self, policies: PlayedPolicies) -> None:
        self.played.append(policies.first.train_iter)


@pytest.fixture
def queued(tmp_path: Path) -> RunFolder:
    """A run that begins, and has got no worker yet."""
    run = RunFolder(tmp_path)
    run.policy.mkdir()
    RunJournal(run.journal).close()
    run.beginner("0000-1111").touch()
    return run


def at_each_pause(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> list[float]:
    """Instead of pauses the steps are done, one after the other; returns the pauses."""
    pauses: list[float] = []

    def pause(pause_s: float) -> None:
        steps[len(pauses)]()
        pauses.append(pause_s)

    monkeypatch.setattr(time, "sleep", pause)
    return pauses


def test_a_queued_run_is_waited_for_until_it_has_a_policy(queued: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> None:
        save(queued.root, dqn(), 4)
        queued.beginner("0000-1111").unlink()

    pauses = at_each_pause(monkeypatch, lambda: None, end)
    player = Watching(queued.root)
    follow_run(player)
    assert len(pauses) == 2
    assert player.played == [4]
    assert player.said.getvalue().splitlines() == ["it waits for workers", "the run is over (policies played: 1)"]


def test_a_run_that_got_its_workers_meanwhile_goes_on(queued: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal is closed at the first look, and open when it would be read."""
    opened: list[RunJournal] = []
    looks: list[bool] = []

    def is_queued(journal: Path) -> bool:
        if looks == [False]:
            queued.beginner("0000-1111").unlink()
            opened.append(RunJournal(journal))
        return False

    def is_open(journal: Path) -> bool:  # POSIX locks do not hold against the process that has them
        looks.append(bool(opened))
        return looks[-1]

    def end() -> None:
        save(queued.root, dqn(), 4)
        opened.pop().close()

    monkeypatch.setattr(playing, "is_queued", is_queued)
    monkeypatch.setattr(playing, "is_open", is_open)
    at_each_pause(monkeypatch, end)
    player = Watching(queued.root)
    follow_run(player)
    assert player.played == [4]
