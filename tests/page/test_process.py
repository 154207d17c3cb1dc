"""The page of a coordinator: over deaths and restarts, with stable links and a private address file."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

pytest.importorskip("uvicorn")
from remuda.client.client import Client
from remuda.page import process as page_process
from remuda.page.__main__ import NICENESS
from remuda.page.process import FILE, AddressFile, PageProcess, Tokens
from remuda.tests.page.folders import finished_run
from remuda.tests.patience import HANG_S, until, until_ended, until_gone
from remuda.wire import connection_file
from remuda.wire.keys.pair import new_pair

ID = "01234567-89ab-4def-8123-456789abcdef"
OTHER = "11234567-89ab-4def-8123-456789abcdef"
URL = "http://127.0.0.1:8080"


def test_they_stay_with_the_key_and_change_with_it() -> None:
    key = new_pair("operator")
    assert Tokens.of(key) == Tokens.of(key)
    others = {*vars(Tokens.of(new_pair("operator"))).values(), *vars(Tokens.of(key)).values()}
    assert len(others) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in others)
    assert Tokens.fresh() != Tokens.fresh()


def test_a_header_gives_the_right_of_its_token() -> None:
    tokens = Tokens.fresh()
    assert tokens.right(f"Bearer {tokens.viewer}") == "viewer"
    assert tokens.right(f"bearer  {tokens.operator} ") == "operator"


@pytest.mark.parametrize("change", [lambda text: "", lambda text: text[:-1], lambda text: text + "A", str.swapcase])
def test_anything_else_gives_none(change: object) -> None:
    assert callable(change)
    tokens = Tokens.fresh()
    assert tokens.right(f"Bearer {change(tokens.operator)}") is None
    for header in (None, "", tokens.operator, f"Basic {tokens.operator}", "Bearer", "Bearer \udcff"):
        assert tokens.right(header) is None


def test_it_is_that_of_one_coordinator_while_it_serves(tmp_path: Path) -> None:
    file = AddressFile(tmp_path)
    assert (file.url_of(ID), file.port) == (None, None)
    file.write(URL, ID, serving=True)
    assert (file.url_of(ID), file.url_of(OTHER), file.port) == (URL, None, 8080)
    file.write(URL, ID, serving=False)
    assert file.url_of(ID) is None, "anybody may listen there by now"
    assert file.port == 8080, "for the next start"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "\xff", "[" * 4_000, '{"url":"http://127.0.0.1:8080"}',
        f'{{"coordinator":"{ID}","serving":true,"url":"https://elsewhere/x"}}',
        f'{{"coordinator":"{ID}","serving":true,"url":"http://a b:1"}}',
    ],
)  # fmt: skip
def test_a_damaged_one_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    (tmp_path / FILE).chmod(0o600)
    assert (AddressFile(tmp_path).url_of(ID), AddressFile(tmp_path).port) == (None, None)


def test_one_that_others_may_write_is_none(tmp_path: Path) -> None:
    AddressFile(tmp_path).write(URL, ID, serving=True)
    (tmp_path / FILE).chmod(0o666)
    assert AddressFile(tmp_path).url_of(ID) is None


@pytest.mark.parametrize("of_command", [0, 8, 10])
def test_its_priority_is_low_once(of_command: int) -> None:
    """A command that is nice itself hands that on: both together would leave the page nothing of a full machine."""
    program = (
        f"import os; before = os.nice({of_command}); from remuda.page.__main__ import lower_priority; "
        "lower_priority(); print(before, os.nice(0))"
    )
    ended = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, timeout=HANG_S, check=True)
    before, after = map(int, ended.stdout.split())
    assert after == min(max(NICENESS, before + 1), 19)


class Coordinator:
    """A `remuda coordinator --page` and the link that it printed."""

    def __init__(self, folder: Path, number: int = 0, *options: object) -> None:
        self.runs, self.log = folder / "runs", folder / f"coordinator{number}.txt"
        arguments = command("coordinator", "--runs-dir", self.runs, "--page", *options)
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(arguments, stderr=output)
        until(lambda: "for a link that allows actions" in self.log.read_text(), "a line with the link")
        (self.link,) = re.findall(r"^page: (\S+)$", self.log.read_text(), re.MULTILINE)

    @property
    def page(self) -> psutil.Process:
        """The process that serves the page."""
        (found,) = (each for each in psutil.Process(self.process.pid).children() if "remuda.page" in each.cmdline())
        return found


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-P", "-m", "remuda.cli", *map(str, arguments)]


@contextmanager
def asked(link: str, path: str) -> Generator[HTTPResponse]:
    """The answer to a request, not read yet."""
    parts = urlsplit(link)
    with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=HANG_S)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {parts.fragment.removeprefix('token=')}"})
        yield connection.getresponse()


def get(link: str, path: str) -> tuple[int, Any]:
    with asked(link, path) as answer:
        return answer.status, json.loads(answer.read())


def is_served(link: str) -> bool:
    try:
        return bool(get(link, "/api/session")[1]["coordinator"] == "up")
    except OSError:
        return False


@pytest.fixture
def started() -> Generator[list[Coordinator]]:
    coordinators: list[Coordinator] = []
    yield coordinators
    for each in coordinators:
        if each.process.poll() is None:
            until_ended(each.process, signal.SIGTERM)


@pytest.fixture
def port() -> Generator[int]:
    """One that nobody else takes: it is bound, but nobody listens at it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.mark.processes
def test_an_open_page_goes_on_over_a_killed_coordinator(started: list[Coordinator], tmp_path: Path, port: int) -> None:
    finished_run(tmp_path / "runs", "a")
    first = Coordinator(tmp_path, 0, "--page-at", port)
    started.append(first)
    until(lambda: is_served(first.link), "the page")
    assert get(first.link, "/api/session")[1]["right"] == "viewer"
    assert get(first.link, "/api/herd")[1]["coordinator"]["pid"] == first.process.pid
    assert [run["run"] for run in get(first.link, "/api/runs")[1]["runs"]] == ["a"]
    wrong = first.link[:-4] + "AAAA"
    assert get(wrong, "/api/runs")[0] == 401

    page = first.page
    assert page.nice() > psutil.Process(first.process.pid).nice()
    token = urlsplit(first.link).fragment.removeprefix("token=")
    assert token not in " ".join(page.cmdline()), "others may see command lines"
    first.process.kill()
    first.process.wait()
    until_gone([page])

    second = Coordinator(tmp_path, 1)
    started.append(second)
    assert second.link == first.link, "the same port and token: the open page finds it"
    until(lambda: is_served(second.link), "the page")
    assert get(second.link, "/api/herd")[1]["coordinator"]["pid"] == second.process.pid

    asked = subprocess.run(
        command("page", tmp_path / "runs", "--link"), capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert get(asked.stdout.strip(), "/api/session")[1]["right"] == "operator"

    connection = connection_file.read(tmp_path / "runs" / "connection.json")
    keys_dir, coordinator = Path(connection.keys_dir), connection.coordinator
    page = second.page
    with Client(tmp_path / "runs" / "connection.json") as client:
        client.shutdown()
    assert second.process.wait(HANG_S) == 0
    until_gone([page])
    assert AddressFile(keys_dir).url_of(coordinator) is None, "anybody may listen at its port by now"
    assert AddressFile(keys_dir).port == port


@pytest.mark.processes
def test_a_page_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_process, "RESTART_S", 0.05)
    said: list[str] = []
    with PageProcess("0", Tokens.fresh(), runs_dir=tmp_path, connection_file=None, say=said.append) as page:
        first = page.pid
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", str(tmp_path / "none"))
            os.kill(first, signal.SIGKILL)
            until(lambda: len(said) >= 3, "attempts that fail")
        until(lambda: page.pid != first, "another one")
        until(lambda: answers(page.link("viewer")), "the page")
        last = psutil.Process(page.pid)
    assert said[0] == "the page's process ended with exit code -9; it restarts in 0.05 s"
    assert all(text.startswith("the page's process cannot be started: [Errno 2]") for text in said[1:])
    until_gone([last])


def answers(link: str) -> bool:
    try:
        return get(link, "/api/session")[0] == 200
    except OSError:
        return False


@pytest.mark.processes
def test_stored_runs_need_no_coordinator_and_an_open_page_does_not_hold_up_the_end(tmp_path: Path) -> None:
    finished_run(tmp_path / "runs", "a")
    log = tmp_path / "page.txt"
    with log.open("wb") as output:
        slurm = {**os.environ, "SLURM_JOB_ID": "7"}
        process = subprocess.Popen(command("page", tmp_path / "runs"), stderr=output, env=slurm)
    with ExitStack() as opened:
        try:
            until(lambda: "page: " in log.read_text(), "a line with the link")
            (link,) = re.findall(r"^page: (\S+)$", log.read_text(), re.MULTILINE)

            until(lambda: answers(link), "the page")
            assert get(link, "/api/session")[1]["coordinator"] == "none"
            assert get(link, "/api/run?run=a")[1]["run"]["best_return"] == 100.0
            stream = opened.enter_context(asked(link, "/api/events"))
            assert stream.readline().startswith(b"id: ")
            served = psutil.Process(process.pid).children()
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(HANG_S)
        stream.read()  # raises if it was cut off
    assert code == 0
    until_gone(served)
    port = urlsplit(link).port
    assert log.read_text().splitlines() == [
        f"page: {link}",
        f"the link works on the node {platform.node()}; elsewhere type this first, and leave it running:",
        f"  ssh -N -L {port}:127.0.0.1:{port} {platform.node()}",
    ]
