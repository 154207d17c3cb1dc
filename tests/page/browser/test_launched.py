"""The page of `remuda launch`, here of a run with two policies: each by itself, and that the herd ends with the run."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.tests.page.browser.devtools import Page
from remuda.tests.parallel.command import Command
from remuda.tests.parallel.conftest import wait_until_held
from remuda.tests.parallel.game_folder import make_game_folder
from remuda.tests.parallel.reading import texts
from remuda.tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.processes]

TWO: dict[str, object] = {"little": {"agents": ["small"]}, "long": {"agents": ["tall"]}}
LEGEND = "[...document.querySelectorAll('figure.chart')][0].querySelector('.legend')"


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """What it prints, once both policies were evaluated; the run stands still from then on."""
    place = tmp_path_factory.mktemp("launched")
    user, run = make_game_folder(place / "user", TWO), place / "runs" / "game"
    user.hold()
    command = Command(place / "scratch", user.root, "launch", user.config, "--run-dir", run, "--page")
    try:
        wait_until_held(command, run, user)
        logs = [run / "log" / name / "commander" / "commander_logger.txt" for name in TWO]
        until(lambda: all(texts(log, "evaluation of iteration_0.pth.tar") for log in logs), "both are evaluated")
        (found,) = re.findall(r"^page: (\S+)$", (place / "scratch.err").read_text(), re.M)
        yield found
    finally:
        user.release()
        command.end()


def test_each_policy_is_shown_by_itself(link: str, tab: Page, pictures: Path) -> None:
    tab.open(f"{link}&/run/game")
    tab.until_text("little", "long", "Updates/s", within="table")
    tab.until(f"['game, little', 'game, long'].every((name) => {LEGEND}.innerText.includes(name))", "both curves")
    tab.until("document.querySelectorAll('.lane svg path').length > 1", "the lanes of the first")
    tab.screenshot(pictures / "policies.png", whole=True)
    tab.choose("label select", "long")
    tab.until("location.hash === '#/run/game?policy=long'")
    tab.open(f"{link}&/run/game/checkpoints?policy=long")
    tab.until_text("iteration_0.pth.tar", within="table")
    assert tab.js("document.querySelector('label select').value") == "long"
    assert "Evaluate …" not in tab.text("table"), "all policies of a run play together: the newest, or the best"
    tab.open(f"{link}&/run/game/logs")
    tab.until("[...document.querySelectorAll('option')].some((one) => one.innerText.startsWith('long/learner'))")
    tab.until_text("[INFO]", within=".log")
    tab.choose("select", "long/learner/learner_logger.txt")
    tab.until("location.hash.includes('long%2Flearner')")
    tab.until("document.querySelector('.log div')")


def test_whoever_submits_to_a_launch_is_told_that_its_herd_ends(link: str, tab: Page) -> None:
    for view in ("queue", "submit"):
        tab.open(f"{link}&/{view}")
        shown = tab.until_text("This herd was started by remuda launch", within="main")
        assert "remuda coordinator" in shown, "the way to a herd that stays"
