"""The page in a headless Chromium, beside what was promised: how soon it is there, and what it costs a run.

First paint; 100 runs of a million points each, opened in the view that compares them and one by one (by a server that
has read nothing yet, so that curves are samples at first), and how long it takes until such a run is read whole; the
size of all files that are sent; a herd of 1,000 simulated workers, and how soon one that joins them is shown; and the
updates per second of a real `remuda launch` with its page open in the browser and closed, by turns, on the same two
cores. There the browser stands for one on another machine, so it has the lowest priority.

Needs a Chromium (`apt-get install --no-install-recommends chromium`), 3 GB of temporary files, and Linux.
`REMUDA_PAGE_POINTS=100000` for shorter runs.
"""

from __future__ import annotations

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from remuda.benchmarks.figure import Figure, Goal, compare, main
from remuda.benchmarks.herd import REMUDA, ROOT, until
from remuda.benchmarks.made_runs import made
from remuda.benchmarks.stand_ins import join
from remuda.benchmarks.thousand_workers import WORKERS, coordinator, herd, raise_file_limit, registered
from remuda.client.client import Client
from remuda.page.app import STATIC
from remuda.page.process import PageProcess, Tokens
from remuda.tests.page.browser.devtools import MISSING, Browser, Page, found
from remuda.wire.messages import OVER

RUNS = 100
POINTS = int(os.environ.get("REMUDA_PAGE_POINTS", "1000000"))
FIRST_PAINT_S, OPEN_S, SIZE_BYTES = 0.3, 2.0, 180_000
SHOWN_S = 5.0
"""Until a change of the herd is shown: the coordinator is asked once a second at most, and gives it 1 % of its time."""
TASK_S = 0.1
"""Of the browser's own thread: longer ones would be felt."""
SHORT_S = 0.05
"""A browser tells of no shorter ones."""
PAINTS, OPENINGS, JOINS = 5, 3, 5
CONFIG = ROOT / "examples" / "cartpole_dqn.yaml"
ENDLESS = ("stop.stop_value=null", "stop.max_env_steps=1000000000", "collector.count=1", "evaluator.episodes=0",
           "checkpoint.interval_env_steps=1000000000")  # fmt: skip
"""The learner is what limits such a run, and neither evaluations nor checkpoints disturb it."""
WARM_UP_ITERS = 4_000
WINDOW_S = 8.0
TURNS = 12
OPENED_S = 3.0
CLOSED_S = 11.0
"""So long after it was looked at the page's process still asks for the status."""
DEADLINE_S = 180.0
_LINK = re.compile(r"^page: (http://\S+/#token=[\w-]+)$", re.M)
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_SHOWN = "shown_ms"


@dataclass(frozen=True)
class Served:
    """A page's server."""

    url: str
    token: str

    def link(self, view: str) -> str:
        """The link that opens a view."""
        return f"{self.url}/#token={self.token}&/{view}"

    def get(self, path: str) -> Any:
        """What it answers, from JSON."""
        return json.loads(self.bytes(path))

    def bytes(self, path: str) -> bytes:
        """The body of an answer."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=DEADLINE_S)
        try:
            connection.request("GET", f"/{path}", headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status} {body[:200]!r}")
        return body


@contextmanager
def served(runs_dir: Path, connection_file: Path | None = None) -> Generator[Served]:
    """A server that has answered once, and read no run yet."""
    tokens = Tokens.fresh()
    with PageProcess("0", tokens, runs_dir=runs_dir, connection_file=connection_file) as process:
        here = Served(process.url, tokens.viewer)
        here.get("api/session")
        yield here


@contextmanager
def tab_of(browser: Browser) -> Generator[Page]:
    """A tab of its own, with nothing in its cache."""
    tab = browser.page()
    try:
        yield tab
    finally:
        tab.close()


def first_paint(browser: Browser, here: Served) -> float:
    """Seconds from the link to the first thing that is seen."""
    with tab_of(browser) as tab:
        tab.open(here.link("runs"))
        return float(tab.until(_FIRST_PAINT, "a first paint")) / 1e3


def opened(browser: Browser, link: str, is_shown: str) -> float:
    """Seconds from a link until the expression is true, which is looked at before each frame."""
    with tab_of(browser) as tab:
        look = f"const look = () => {{ let is; try {{ is = {is_shown}; }} catch {{}} "
        look += f"if (is) window.{_SHOWN} = performance.now(); else requestAnimationFrame(look); }}; look();"
        tab.call("Page.addScriptToEvaluateOnNewDocument", source=look)
        tab.call("Page.navigate", url=link)
        return float(tab.until(f"window.{_SHOWN}", is_shown)) / 1e3


def read_whole(here: Served, run: str) -> float:
    """Seconds until the curves of evaluations and of the table are no samples any more."""
    begin_s = time.monotonic()
    for y in ("evaluation/return_mean", "progress/AverageEpRet"):
        path = f"api/curves?run={quote(run)}&y={quote(y)}"
        until(functools.partial(_is_exact, here, path), y, deadline_s=DEADLINE_S, pause_s=0.1)
    return time.monotonic() - begin_s


def _is_exact(here: Served, path: str) -> bool:
    return bool(here.get(path)["charts"][0]["runs"][0]["exact"])


def sent_bytes(here: Served) -> int:
    """Of all files of the browser side."""
    names = [f"static/{path.name}" for path in STATIC.iterdir() if path.name != "index.html"]
    return sum(len(here.bytes(name)) for name in ["", *names])


def of_stored_runs(browser: Browser, folder: Path) -> list[Figure]:
    """What depends on the length and the number of runs."""
    runs_dir = folder / "runs"
    runs_dir.mkdir()
    names = made(runs_dir, RUNS, POINTS)
    points = f"{POINTS:,} points"
    lines = f"document.querySelector('.chart canvas') && document.querySelectorAll('tbody tr').length >= {RUNS}"
    lanes = "document.querySelector('.chart canvas') && document.querySelector('.lane svg path')"

    def cold(measure: Callable[[Served], float]) -> float:
        with served(runs_dir) as here:
            return measure(here)

    with served(runs_dir) as here:
        paints_s = [first_paint(browser, here) for _ in range(PAINTS)]
        size = sent_bytes(here)
    compared_s = [cold(lambda here: opened(browser, here.link("compare"), lines)) for _ in range(OPENINGS)]
    one_s = [cold(lambda here: opened(browser, here.link(f"run/{names[0]}"), lanes)) for _ in range(OPENINGS)]
    whole_s = [cold(lambda here: read_whole(here, names[0])) for _ in range(OPENINGS)]
    return [
        promised("page: first paint", "s", paints_s, FIRST_PAINT_S),
        promised(f"page: {RUNS} runs of {points} compared", "s", compared_s, OPEN_S),
        promised(f"page: one of {RUNS} runs of {points}", "s", one_s, OPEN_S),
        promised(f"page: a run of {points} read whole", "s", whole_s, OPEN_S, goal=">= 0"),
        promised("page: all files that are sent", "bytes", [float(size)], SIZE_BYTES),
    ]


# --- a herd of a thousand ---


def of_a_herd(browser: Browser, folder: Path) -> list[Figure]:
    """How soon it is shown, and what happens in it."""
    raise_file_limit(4 * WORKERS)
    with ExitStack() as stack:
        _, file = stack.enter_context(coordinator(folder))
        pipes = stack.enter_context(herd(file, WORKERS, 0.0, hurry=False))
        registered(pipes)
        here = stack.enter_context(served(folder / "runs", file))
        shown = f"document.querySelector('main').textContent.includes('{WORKERS:,} workers')"
        opened_s = [opened(browser, here.link("herd"), shown) for _ in range(OPENINGS)]
        tab = stack.enter_context(tab_of(browser))
        watch = "new PerformanceObserver((list) => (window.tasks ??= []).push(...list.getEntries()))"
        tab.call("Page.addScriptToEvaluateOnNewDocument", source=f"{watch}.observe({{type: 'longtask'}});")
        tab.call("Page.navigate", url=here.link("herd"))
        tab.until(shown)
        tab.js("window.tasks = []")
        joined_s: list[float] = []
        for number in range(1, JOINS + 1):
            link = join(file, "collector")
            stack.callback(link.close, "measured", 1.0)
            begin_s = time.monotonic()
            tab.until(f"document.querySelector('main').textContent.includes('{WORKERS + number:,} workers')")
            joined_s.append(time.monotonic() - begin_s)
        tasks_s = [float(each) / 1e3 for each in tab.js("window.tasks.map(({duration}) => duration)")]
        longest_s = max(tasks_s, default=SHORT_S)
    return [
        promised(f"page: herd of {WORKERS:,} workers", "s", opened_s, OPEN_S),
        promised(f"page: a worker that joins {WORKERS:,}, until it is shown", "s", joined_s, SHOWN_S),
        promised(f"page: longest task of an update of {WORKERS:,} workers", "s", [longest_s], TASK_S),
    ]


# --- the learner's pace ---


@contextmanager
def launched(folder: Path) -> Generator[tuple[Client, str]]:
    """A run that `remuda launch` has started, at work; and the link to its page."""
    command = [*REMUDA, "launch", str(CONFIG), "--run-dir", str(folder / "run"), "--page"]
    command += [part for setting in ENDLESS for part in ("--set", setting)]
    said = folder / "launch.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until(lambda: _LINK.search(said.read_text()) is not None, "a link", deadline_s=DEADLINE_S, pause_s=0.1)
        (link,) = _LINK.findall(said.read_text())
        with Client(_connection_file(process.pid)) as client:
            until(lambda: _train_iter(client) > WARM_UP_ITERS, "updates", deadline_s=DEADLINE_S, pause_s=0.2)
            yield client, link
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()  # the lifeline that breaks then ends everything else
            process.wait()


def _connection_file(pid: int) -> Path:
    """As the command line of a process that it has started names it."""
    for child in psutil.Process(pid).children(recursive=True):
        arguments = child.cmdline()
        if "--connection-file" in arguments:
            return Path(arguments[arguments.index("--connection-file") + 1])
    raise RuntimeError("no process of the launch has a connection file")


def _train_iter(client: Client) -> int:
    [run] = client.status().experiments
    if run.state in OVER:
        raise RuntimeError(f"the run is {run.state}: {run.reason}")
    return run.train_iter


def _next_news(client: Client) -> tuple[int, float]:
    """The moment at which the count grows next: it is then exact."""
    before, end_s = _train_iter(client), time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        if (now := _train_iter(client)) > before:
            return now, time.monotonic()
        time.sleep(0.002)
    raise TimeoutError("the learner does no updates")


def pace(client: Client) -> float:
    """Updates per second."""
    begin, begin_s = _next_news(client)
    time.sleep(WINDOW_S)
    end, end_s = _next_news(client)
    return (end - begin) / (end_s - begin_s)


def of_a_run(browser: Browser, folder: Path) -> list[Figure]:
    """The learner's pace with the page open and closed."""
    with launched(folder) as (client, link):

        def with_page() -> float:
            with tab_of(browser) as tab:
                tab.open(f"{link}&/run/run")
                tab.until("document.querySelector('.facts dd')")
                time.sleep(OPENED_S)
                return pace(client)

        def without_page() -> float:
            time.sleep(CLOSED_S)
            return pace(client)

        return compare(
            "page: the learner's pace with it open",
            unit="updates/s",
            goal=">= 0.99",
            ours=with_page,
            references={"closed": without_page},
            n=TURNS,
        )


def promised(name: str, unit: str, values: Sequence[float], most: float, *, goal: str = "<= 1") -> Figure:
    """The median beside what was promised."""
    ours = statistics.median(values)
    ratio = ours / most
    print(f"{name}: {', '.join(f'{value:.4g}' for value in values)} {unit}", file=sys.stderr, flush=True)
    return Figure(name, unit, ours, most, "promised", ratio, goal, Goal.parse(goal).met(ratio), len(values))


def figures(peers: bool) -> list[Figure]:
    """None of the systems compared with has such a page."""
    if peers:
        return []
    if found() is None:
        raise SystemExit(MISSING)
    measured: list[Figure] = []
    for number, part in enumerate((of_stored_runs, of_a_herd, of_a_run)):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            niceness = 19 if part is of_a_run else 0
            (folder / f"profile_{number}").mkdir()
            browser = stack.enter_context(Browser(folder / f"profile_{number}", niceness=niceness))
            measured += part(browser, folder)
    return measured


if __name__ == "__main__":
    main(figures)
