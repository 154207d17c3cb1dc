"""What has happened, from stored runs: the lineage of a population, and recorded episodes step by step."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import msgspec
import psutil
import pytest

from remuda.client.sweeps.record import FILE as SWEEP_FILE
from remuda.runner.serial import Start
from remuda.tests.page.browser.devtools import Page
from remuda.tests.page.browser.stage import Served, served
from remuda.tests.page.folders import population, run_folder
from remuda.tests.patience import until_gone
from remuda.tests.runner.runs import run_tiny, tiny_config

pytestmark = [pytest.mark.browser, pytest.mark.processes]

WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
HELD = """
        import pathlib, time
        while pathlib.Path(__file__).with_name("held").exists():
            time.sleep(0.01)
"""
"""The begin of a step that may be held up."""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment's code."""
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def stored(user: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    place = tmp_path_factory.mktemp("history")
    run_tiny(tiny_config(user, "stop.max_env_steps=120"), Start(place / "runs" / "tiny"))
    code = user / "walk.py"
    step = "def step(self, action):\n"
    code.write_text(code.read_text().replace(step, step + HELD.lstrip("\n")))
    run_folder(place / "runs", "unkept", log={"steps": False})
    (place / "runs" / "pbt" / "v").mkdir(parents=True)
    content = population("pbt")
    for record in content.runs:
        run_folder(place / "runs", f"pbt/{record.run_dir}")
    (place / "runs" / "pbt" / SWEEP_FILE).write_bytes(msgspec.json.encode(content))
    with served(place / "runs", place / "page.err", "--right", "operator") as made:
        yield made


def test_a_lineage_is_read_by_keys(stored: Served, tab: Page, pictures: Path) -> None:
    tab.size(360, 844, phone=True)
    tab.open(f"{stored.link}&/compare?sweep=pbt")
    tab.until_text("2 members, 1 replaced.")
    tab.until("document.querySelectorAll('.lineage rect').length === 6", "a bar for each interval of each run")
    tab.until_text("m01_g1, steps 207 to ", within=".told")
    tab.until_text("from m00_g0 at step 105 (return 105, iteration_105.pth.tar) with lr 0.1 → 0.05.", within=".told")
    tab.until_text("Its line: m00_g0 → m01_g1.", within=".told")
    assert not tab.js(WIDER)
    tab.screenshot(pictures / "lineage.png")
    tab.js("document.querySelector('.lineage').focus()")
    for key, told in (
        ("ArrowLeft", "m01_g1, steps 105 to 207: return 207, iteration_207.pth.tar."),
        ("ArrowLeft", "m01_g0, steps 0 to 100: failed, replaced later."),
        ("ArrowUp", "m00_g0, steps 0 to 105: return 105, iteration_105.pth.tar."),
    ):
        tab.press(key)
        tab.until_text(told, within=".told")
    tab.press("Enter")
    tab.until("location.hash === '#/run/pbt%2Fv%2Fm00_g0'")


def test_the_worst_episode_is_stepped_through(stored: Served, tab: Page, pictures: Path) -> None:
    tab.open(f"{stored.link}&/run/tiny/episodes")
    tab.until_text("episodes, the worst first.")
    returns = tab.js("[...document.querySelectorAll('td:nth-child(2)')].map((one) => one.innerText.replace('−', '-'))")
    assert [float(one) for one in returns] == sorted(float(one) for one in returns)
    tab.click("tbody a")
    tab.until_text("equal to the record to the last bit")
    tab.until_text("step 0 of ", within="output")
    tab.until_text("Observation after the reset")
    tab.press("ArrowRight", "ArrowRight", "ArrowLeft")
    tab.until_text("step 1 of ", within="output")
    shown = tab.until_text("Action", "Reward", "Return so far", "Policy version", "Observation after the step")
    tab.screenshot(pictures / "episode.png")
    tab.until("location.hash.endsWith('&step=1')")
    tab.open(f"{stored.link}&{tab.js('location.hash').removeprefix('#')}")
    tab.until_text("step 1 of ", within="output")
    tab.until_text("equal to the record to the last bit")
    assert tab.text() == shown, "the address leads to the step"
    tab.open(f"{stored.link}&/run/unkept/episodes")
    tab.until_text("its config has log.steps = false", within=".bad")


def test_leaving_the_page_ends_its_replay(stored: Served, tab: Page, user: Path) -> None:
    held = user / "held"
    held.touch()
    try:
        tab.open(f"{stored.link}&/run/tiny/episodes?episode=0.0.0.1")
        tab.until_text("Its copy of the environment is played up to it:")
        replays = [
            one
            for one in psutil.Process(stored.pid).children(recursive=True)
            if "remuda.page.replaying" in one.cmdline()
        ]
        assert len(replays) == 1
        tab.call("Page.navigate", url="about:blank")
        until_gone(replays)
    finally:
        held.unlink()
    tab.call("Page.navigateToHistoryEntry", entryId=tab.call("Page.getNavigationHistory")["entries"][-2]["id"])
    tab.until_text("equal to the record to the last bit")
