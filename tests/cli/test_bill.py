"""`remuda report` as people type and read it: periods, amounts, sums and estimated energy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.cli import bill
from remuda.cli.bill import hour_of
from remuda.tests.cli.terminal import Terminal
from remuda.wire.messages import BillLine, Used

VISION = Used(7_200_000_000, 3_600_000_000, 1_800_000_000, env_steps=500, updates=40, payload_bytes=900)
OTHER = Used(worker_us=100_000, env_steps=7)
NOW_H = 498_840 + 24
"""2026-11-29."""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """With a coordinator that answers with two lines."""

    class Client:
        def bill(self, by: str, since_hour: int, until_hour: int | None) -> list[BillLine]:
            assert (by, since_hour, until_hour) == ("project", 498_840, None)
            return [BillLine(project="vision", runs=2, used=VISION), BillLine(runs=1, used=OTHER)]

    @contextmanager
    def connected(given: Path | None, runs_dir: Path) -> Iterator[Client]:
        yield Client()

    monkeypatch.setattr(bill, "connected", connected)
    return Terminal(monkeypatch, capsys)


def report(terminal: Terminal, *options: object) -> str:
    ended = terminal.remuda("report", "--by", "project", "--since", "2026-11-28", *options)
    assert ended.code == 0, ended.err
    return ended.out


def test_a_table_has_the_sums_and_the_energy_of_the_given_watts(terminal: Terminal) -> None:
    """Half an hour of a core of 10 W and an hour of a GPU of 300 W."""
    assert [" ".join(line.split()) for line in report(terminal, "--watts", 10, 300).splitlines()] == [
        "project runs worker_s gpu_s cpu_s env_steps updates payload_bytes kwh_estimated",
        "vision 2 7200.0 3600.0 1800.0 500 40 900 0.305000",
        "- 1 0.1 0.0 0.0 7 0 0 0.000000",
        "all 7200.1 3600.0 1800.0 507 40 900 0.305000",
    ]


def test_other_programs_get_exact_numbers(terminal: Terminal) -> None:
    assert report(terminal, "--csv").splitlines() == [
        "project,runs,worker_s,gpu_s,cpu_s,env_steps,updates,payload_bytes",
        "vision,2,7200.0,3600.0,1800.0,500,40,900",
        ",1,0.1,0.0,0.0,7,0,0",
    ]
    amounts = {"worker_s": 0.1, "gpu_s": 0.0, "cpu_s": 0.0, "env_steps": 7, "updates": 0, "payload_bytes": 0}
    assert json.loads(report(terminal, "--json"))[1] == {"project": "", "runs": 1, **amounts}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--csv", "--json"), "only one of --csv and --json"),
        (("--watts", "-1", "300"), "--watts -1 300: give the watts"),
        (("--since", "yesterday"), "'yesterday' is no time: write 24h"),
    ],
)
def test_a_mistake_is_named(terminal: Terminal, options: tuple[str, ...], said: str) -> None:
    ended = terminal.remuda("report", *options)
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("24h", NOW_H - 24),
        ("7d", NOW_H - 168),
        ("2026-11-28", 498_840),
        ("2026-11-28T14", 498_854),
        ("2026-11-28T14:59+02:00", 498_852),
    ],
)
def test_a_time_means_a_whole_hour_in_utc(text: str, hour: int) -> None:
    assert hour_of(text, now_s=NOW_H * 3_600.0 + 3_599.0) == hour
