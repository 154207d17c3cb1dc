"""A page that stays open while its coordinator is killed and started again, or stands still; and runs without one."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.tests.page.browser.devtools import Page
from remuda.tests.page.browser.stage import Stage, served
from remuda.tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.processes]

LINES = "[...document.querySelectorAll('.log div')].map((one) => one.textContent === ' ' ? '' : one.textContent)"


BACK = "document.getElementById('away').hidden"


@pytest.fixture(scope="module")
def workers(stage: Stage) -> Generator[None]:
    """All but the coordinator: each test here starts it, and ends what it has started."""
    stage.kill()
    yield
    stage.restart()


@pytest.fixture(autouse=True)
def coordinator(stage: Stage, workers: None) -> Generator[None]:
    stage.restart()
    yield
    stage.kill()


def test_a_followed_log_goes_on_over_a_killed_coordinator(stage: Stage, tab: Page, pictures: Path) -> None:
    tab.open(stage.run("goes_on", "logs"))
    tab.until_text("[INFO]", within=".log")
    tab.until_text("live", within="#state")
    stage.kill()
    away = tab.until_text("The coordinator has not answered since ")
    assert re.search(r"since \d\d:\d\d:\d\d\. This page shows what was known then, and continues by itself\.", away)
    before = tab.js(LINES)
    assert before, "what was shown stays"
    tab.screenshot(pictures / "away.png")
    stage.restart()
    tab.until(BACK, "the coordinator is back")
    killed = stage.herd.kill_worker("collector", "goes_on")
    tab.until_text(f"{killed.uuid}", within=".log")
    after = tab.js(LINES)
    log = (stage.herd.runs / "goes_on" / "log" / "commander" / "commander_logger.txt").read_text()
    assert after[: len(before)] == before
    assert "\n".join(after) in log, "no line is missing, and none comes twice"
    until(lambda: len(tab.streams()) == 1, "one stream")


def test_a_view_that_is_opened_while_nobody_is_there_begins_by_itself(stage: Stage, tab: Page) -> None:
    tab.open(stage.link("herd"))
    tab.until_text("Hosts", within="main")
    for key, text in (("c", "All runs: "), ("q", "goes_on")):  # their modules are loaded now
        tab.press("g", key)
        tab.until_text(text, within="main")
    stage.kill()
    tab.until(f"!{BACK}", "it is away")
    tab.press("g", "c")
    tab.until_text("The page's server does not answer.", within="main")
    tab.press("g", "h")
    tab.until_text("Herd", "The coordinator does not answer.", within="main")
    tab.press("g", "c")
    tab.until_text("The page's server does not answer.", within="main")
    stage.restart()
    tab.until_text("All runs: ", within="main")
    tab.until(BACK, "it is back")
    assert tab.js("location.hash") == "#/compare"
    until(lambda: len(tab.streams()) == 1, "one stream")


def test_a_coordinator_that_stands_still_is_seen(stage: Stage, tab: Page) -> None:
    tab.open(stage.link("queue"))
    tab.until_text("live", within="#state")
    stage.process.send_signal(signal.SIGSTOP)
    try:
        tab.until_text("The coordinator has not answered since")
    finally:
        stage.process.send_signal(signal.SIGCONT)
    tab.until(BACK, "it is back")
    assert "has not answered" not in tab.until_text("live", within="#state")


@pytest.fixture
def stored(stage: Stage) -> Generator[str]:
    """The link of `remuda page` for run folders that no coordinator has."""
    folder = stage.folder / "stored"
    for name in ("done_1", "done_2"):
        shutil.copytree(stage.herd.runs / name, folder / name, dirs_exist_ok=True)
    with served(folder, stage.folder / "page.err") as made:
        yield made.link


def test_runs_without_a_coordinator_are_shown_from_their_folders(tab: Page, stored: str, pictures: Path) -> None:
    tab.open(stored)
    shown = tab.until_text("done_1", "done_2", "no coordinator")
    assert tab.js("location.hash") == "#/runs"
    assert "finished" in shown
    tab.open(f"{stored}&/run/done_1")
    tab.until_text("Finished: it has made 2,000 environment steps.", "all 2 seeds as a band", "Where the time goes")
    tab.until("document.querySelector('.chart canvas')")
    tab.screenshot(pictures / "stored.png")
    for part, there in (("logs", ".log div"), ("checkpoints", "tbody tr"), ("config", "tbody tr")):
        tab.open(f"{stored}&/run/done_1/{part}")
        tab.until(f"document.querySelector('main {there}')")
    for view in ("queue", "herd"):
        tab.open(f"{stored}&/{view}")
        tab.until_text("There is no coordinator here")
