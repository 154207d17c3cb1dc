"""What each view shows of real runs, by mouse, by keyboard, on a phone, in light and dark; and that text stays text."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from remuda.client.sweeps.record import FILE as SWEEP_FILE
from remuda.tests.page.browser.devtools import Browser, Page
from remuda.tests.page.browser.stage import HARM, HARMFUL_NAME, Stage
from remuda.tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.processes]

PARTS = ["", "logs", "checkpoints", "config", "episodes"]
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
SCROLLS = "one.checkVisibility() && one.scrollWidth > one.clientWidth"
GROUND = "getComputedStyle(document.body).backgroundColor"
CANVAS = "document.querySelector('.chart canvas')"


ROW = "document.querySelector('main tbody tr')"
READY = {
    "queue": "document.querySelectorAll('main tbody tr').length >= 5",
    "runs": ROW,
    "herd": "document.querySelectorAll('main table')[1].querySelectorAll('tbody tr').length === 4",
    "compare": CANVAS,
    "submit": "document.querySelector('.editor')",
    "run/goes_on": f"document.querySelector('.lane path') && {CANVAS}",
    "run/done_1": f"document.querySelector('.lane path') && {CANVAS}",
    "run/goes_on/logs": "document.querySelector('.log div')",
    "run/done_1/checkpoints": ROW,
    "run/done_1/config": ROW,
    "run/done_1/episodes": ROW,
}
"""Each view, and when it is all there."""


def test_the_queue_says_why_each_run_waits(stage: Stage, tab: Page, pictures: Path) -> None:
    tab.open(stage.link("queue"))
    ended = "Finished: it has made all its environment steps."
    shown = tab.until_text("1 run with workers, 1 waiting. Free: no worker.", HARMFUL_NAME, ended)
    assert "goes_on has them; it is number 1 in the queue." in shown
    assert "Waits for 1 learner, " in shown
    tab.until(
        "document.querySelector('main').innerText.match(/learner|collectors|nobody waits/)", "who waits within a run"
    )
    tab.screenshot(pictures / "queue.png")


def test_the_herd_lists_hosts_workers_and_failures(stage: Stage, tab: Page, pictures: Path) -> None:
    tab.open(stage.link("herd"))
    tab.until_text("Workers", "Hosts", "learner", "collector", "evaluator", "goes_on", "Cores used")
    killed = stage.herd.kill_worker("collector", "goes_on")
    shown = tab.until_text(f"{killed.uuid[:8]}.2")
    assert f"{killed.uuid[:8]}.1" not in tab.text("table tbody")
    assert "Started again" in shown
    tab.type("input[type=search]", killed.uuid[:8])
    tab.until("document.querySelectorAll('main table')[1].querySelectorAll('tbody tr').length === 1")
    tab.open(stage.link("herd"))
    tab.until_text("SIGKILL")
    tab.screenshot(pictures / "herd.png", whole=True)


def test_a_run_shows_its_curves_and_waits(stage: Stage, tab: Page, pictures: Path) -> None:
    tab.open(stage.run("goes_on"))
    tab.until_text("Environment steps", "Policy lag", "Samples per insert", "Chunks lost", "Where the time goes")
    tab.until("document.querySelectorAll('.lane svg path').length > 4", "lanes")
    tab.until("document.querySelectorAll('.chart canvas').length >= 3", "curves and rates")
    kinds = tab.js("[...new Set([...document.querySelectorAll('.lane path')].map((path) => path.dataset.kind))]")
    assert "work" in kinds
    assert any(kind and kind.startswith("wait_") for kind in kinds)
    names = tab.js("[...document.querySelectorAll('.legend li')].map((each) => each.innerText)")
    assert any(name.startswith("Waits for ") for name in names), names
    tab.until_text("joins as learner", within="[aria-label=Events]")
    tab.screenshot(pictures / "run.png", whole=True)


def test_logs_of_every_worker_are_read_searched_and_followed(stage: Stage, tab: Page, pictures: Path) -> None:
    tab.open(stage.run("goes_on", "logs"))
    tab.until_text("[INFO]", within=".log")
    assert tab.js("document.querySelector('button[aria-pressed]').ariaPressed") == "true"
    killed = stage.herd.kill_worker("collector", "goes_on")
    tab.until_text(killed.uuid, within=".log")
    tab.type("input[type=search]", "JOINS AS LEARNER")
    tab.until("document.querySelectorAll('.log mark').length >= 1")
    marked = tab.js("document.querySelector('.log mark').innerText")
    assert marked == "joins as learner"
    tab.screenshot(pictures / "logs.png")
    tab.click(".log a")
    tab.until("location.hash.includes('at=')")
    tab.until_text("joins as learner", within=".log")
    option = f"[...document.querySelectorAll('option')].find((one) => one.innerText.includes('{killed.uuid[:8]}.1'))"
    tab.until(f"{option}.innerText.includes('(dead)')", "the list knows of it by itself")
    assert "This one writes no more" not in tab.text(), "the commander lives"
    tab.choose("select", tab.js(f"{option}.value"))
    tab.until_text("This one writes no more")


def test_checkpoints_have_returns_and_films(stage: Stage, tab: Page, pictures: Path) -> None:
    tab.open(stage.run("done_1", "checkpoints"))
    tab.until_text("iteration_0.pth.tar", "best", "Mean return")
    tab.click("button", "Film")
    tab.until("document.querySelector('figure img')?.naturalWidth > 0", "a film")
    tab.screenshot(pictures / "checkpoints.png")


def test_charts_can_be_arranged(stage: Stage, browser: Browser, tab: Page, pictures: Path, tmp_path: Path) -> None:
    titles = "[...document.querySelectorAll('.charts h3')].map((one) => one.innerText)"
    tab.open(f"{stage.link('compare')}?run=done_1&run=done_2")
    tab.until(f"{CANVAS} && {titles}.join() === 'return of evaluations'")
    tab.click("summary", "Choose charts (1 shown")
    tab.type("details input", "lossq")
    tab.until("document.querySelector('.found').innerText === 'progress/LossQ'")
    tab.press("Enter")
    tab.until("document.querySelectorAll('.charts canvas').length === 2")
    tab.click("[aria-label='Move before: progress/LossQ']")
    tab.until(f"{titles}[0] === 'progress/LossQ'")
    assert "return of evaluations" in tab.js("document.activeElement.closest('section').nextSibling.innerText")
    tab.click("[aria-label='Logarithmic axis: progress/LossQ']")
    tab.js("document.querySelector('input[type=range]').focus()")
    tab.press("ArrowRight", "ArrowRight")
    tab.until("document.querySelector('.legend').innerText.match(/\\(2 seeds\\) \\S+ \\(/)", "smoothed (as it is)")
    tab.listen()
    asked = [one for one in tab.requested if "/api/curves" in one]
    assert len(asked) == 2, "once for the first chart, once for both"
    tab.js("document.querySelector('.charts [role=img]').focus()")
    tab.press("ArrowRight")
    reads = "[...document.querySelectorAll('.legend')].every((one) => one.innerText.includes('environment steps'))"
    tab.until(reads, "one cursor for both")
    tab.screenshot(pictures / "charts.png", whole=True)
    here = tab.js("location.hash")
    assert here.startswith("#/compare?run=done_1&run=done_2&chart=progress%2FLossQ&chart=evaluation%2Freturn_mean&log=")
    other = browser.page()  # nothing is kept there
    other.open(f"{stage.operators_link}&{here.removeprefix('#')}")
    other.until(f"{titles}.join() === 'progress/LossQ,return of evaluations'")
    assert other.text("output") == "0.02"
    other.close()
    tab.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.click("[aria-label='Download all values: return of evaluations']")
    file = tmp_path / "evaluation_return_mean.csv"
    until(file.exists, "the table")
    head, *rows = file.read_text().splitlines()
    assert (head, {row.partition(",")[0] for row in rows}) == (
        "run,env_step,train_iter,wall_s,value",
        {"done_1", "done_2"},
    )
    tab.open(stage.run("done_1"))
    tab.until(f"{titles}.length === 2", "the choice was kept")


@pytest.fixture
def sweep(stage: Stage) -> Generator[str]:
    """A sweep of two runs."""
    folder = stage.herd.runs / "grid"
    for name in ("done_1", "done_2"):
        shutil.copytree(stage.herd.runs / name, folder / name)
    (folder / SWEEP_FILE).write_text("{}")
    yield folder.name
    shutil.rmtree(folder)


def test_a_sweep_is_compared_in_a_table_that_sorts(stage: Stage, tab: Page, sweep: str) -> None:
    tab.open(stage.link("runs"))
    tab.click("a.button", f"sweep {sweep} (2)")
    tab.until_text("Sweep grid", within="h1")
    names = "[...document.querySelectorAll('section:last-of-type td.name')].map((one) => one.innerText)"
    tab.click("section:last-of-type th button", "seed")
    tab.until("document.querySelector('section:last-of-type th[aria-sort=ascending]')?.innerText.startsWith('seed')")
    assert tab.js(names) == ["done_1", "done_2"]
    tab.click("section:last-of-type th button", "seed")
    assert tab.js(names) == ["done_2", "done_1"]


def test_markup_in_names_and_logs_is_text(stage: Stage, tab: Page) -> None:
    for view in ("queue", "runs", "herd", "compare"):
        tab.open(stage.link(view))
        tab.until("document.querySelector('main h1')")
        if view != "herd":
            tab.until_text(HARMFUL_NAME if view == "queue" else "harmful")
    for part in PARTS:
        tab.open(stage.run("harmful", part))
        tab.until_text(HARM, within="main > div")
    worker = next((stage.herd.runs / "harmful" / "log" / "collector").iterdir()).name
    tab.open(f"{stage.run('harmful', 'logs')}?file=collector/{worker}")
    tab.until_text(HARM, within=".log")
    tab.type("input[type=search]", HARM)
    tab.until(f"document.querySelector('.log mark')?.innerText === {HARM!r}")
    tab.open(stage.run("waiting"))
    tab.until_text(HARMFUL_NAME, within="h1")
    assert tab.js("window.harmed === undefined && document.querySelector('main b, main img') === null")


def test_everything_is_reached_by_keys(stage: Stage, tab: Page, pictures: Path) -> None:
    tab.open(stage.link("queue"))
    tab.until_text("goes_on")
    tab.press("?")
    tab.until_text("Shortcuts", within="dialog")
    tab.screenshot(pictures / "shortcuts.png")
    tab.press("g", "h")
    assert tab.js("location.hash") == "#/queue", "a dialog keeps the keys"
    tab.press("Escape")
    tab.until("!document.querySelector('dialog')")
    for keys, place in (("gh", "#/herd"), ("gc", "#/compare"), ("gr", "#/runs"), ("n", "#/submit"), ("gq", "#/queue")):
        tab.press(*keys)
        tab.until(f"location.hash === {place!r} && document.querySelector('main h1')")
    tab.press("g", "r")
    tab.until_text("Runs", within="h1")
    tab.press("/")
    tab.until("document.activeElement.type === 'search'")
    tab.press("g", "q")
    assert tab.js("location.hash") == "#/runs", "typing is typing"
    tab.press("Escape")
    tab.type("input[type=search]", "done_1")
    tab.until("document.querySelectorAll('tbody tr').length === 1")
    tab.press("Escape", "j")
    tab.until("document.activeElement.matches('tr')")
    tab.press("Enter")
    tab.until("location.hash === '#/run/done_1'")
    tab.until_text("done", within="h1")
    for key, part in (("2", "/logs"), ("3", "/checkpoints"), ("4", "/config"), ("5", "/episodes"), ("1", "")):
        tab.press(key)
        tab.until(f"location.hash === '#/run/done_1{part}'")
        tab.until(f"document.querySelector('.tabs a:nth-child({key})')?.ariaCurrent === 'page'")


@pytest.mark.parametrize(("look", "width", "scheme"), [("light", 1280, "light"), ("phone_dark", 360, "dark")])
def test_every_view_looks_well(stage: Stage, tab: Page, pictures: Path, look: str, width: int, scheme: str) -> None:
    """People look at the pictures; a machine sees that nothing sticks out, and which scheme it is."""
    tab.scheme(scheme)
    for path, there in READY.items():
        phone = look.startswith("phone")
        tab.size(width, 844, phone=phone)
        tab.open(stage.link(path))
        tab.until(there, path)
        assert (int(tab.js(GROUND).removeprefix("rgb(").partition(",")[0]) < 60) is (scheme == "dark")
        tab.until(f"!({WIDER})", f"{path} fits {width} pixels")
        tab.screenshot(pictures / f"{look}_{path.replace('/', '_')}.png", whole=True)
        if phone:
            assert tab.js(f"[...document.querySelectorAll('.scroll')].filter((one) => {SCROLLS}).length") == 0, path
