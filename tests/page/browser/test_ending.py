"""Ctrl-C while somebody submits: nothing is half done, and both the page and the terminal say so in plain words."""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from remuda.tests.page.browser.devtools import Page
from remuda.tests.page.browser.stage import Stage
from remuda.tests.patience import HANG_S, until
from remuda.tests.warm.program import REMUDA

pytestmark = [pytest.mark.browser, pytest.mark.processes]

NEVER_BUILT = """
import time
from pathlib import Path

def make_env():
    Path(__file__).with_name("building").touch()
    while True:
        time.sleep(0.01)
"""
TOLD = "the page ended during the submission: if `remuda status` does not list the experiment, submit it again"


@pytest.fixture
def stage(tmp_path: Path) -> Generator[Stage]:
    """A coordinator alone."""
    made = Stage(tmp_path)
    try:
        made.restart()
        (tmp_path / "slow_envs.py").write_text(NEVER_BUILT)
        yield made
    finally:
        made.herd.end()


def submit(stage: Stage, tab: Page, link: str) -> None:
    """Submit a config whose environment is never built; returns once that has begun."""
    tab.open(link)
    text = f"name: slow\nenv: {{make: 'slow_envs:make_env'}}\npolicy: {{type: dqn}}\nsource_dir: {stage.folder}\n"
    tab.type(".editor textarea", text)
    tab.until_text("This config has no problems: slow.")
    tab.click("button.first")
    tab.until_text("The environment is built once", within="form")
    until((stage.folder / "building").exists, "the environment is being built")


def nothing_is_half_done(stage: Stage) -> None:
    until(lambda: not any(map(submits, stage.herd.family())), "the submission is gone")
    assert not (stage.herd.runs / "slow").exists()
    assert list(stage.herd.root.glob("remuda-page-*")) == [], "its temporary folder"


def submits(process: psutil.Process) -> bool:
    try:
        return "submit" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_of_the_coordinator_breaks_off_a_submission(stage: Stage, tab: Page, pictures: Path) -> None:
    submit(stage, tab, stage.link("submit"))
    stage.process.send_signal(signal.SIGINT)
    assert stage.process.wait(HANG_S) == 0
    tab.until_text(TOLD, within="form")
    tab.until_text("The coordinator has not answered since")
    tab.screenshot(pictures / "broken_off.png")
    nothing_is_half_done(stage)
    assert not any(word in stage.herd.said() for word in ("Traceback", "ERROR", "Cancel")), stage.herd.said()


def test_ctrl_c_of_a_page_beside_the_coordinator_leaves_that_as_it_was(stage: Stage, tab: Page) -> None:
    page = stage.herd.start("page", REMUDA, "page", stage.herd.runs, "--right", "operator")
    said = next(stage.herd.root.glob("*-page.err"))
    until(lambda: "#token=" in said.read_text(), "a link")
    submit(stage, tab, f"{said.read_text().split()[1]}&/submit")
    page.send_signal(signal.SIGINT)
    assert page.wait(HANG_S) == 0
    tab.until_text(TOLD, within="form")
    nothing_is_half_done(stage)
    assert stage.herd.status().experiments == []
    assert len(said.read_text().splitlines()) == 1, said.read_text()
