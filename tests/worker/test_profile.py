"""Profiles name what a process really did. In processes of their own: the timer is the process's, and pytest's too."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.tests.patience import HANG_S
from remuda.worker.profile import Profiler

pytestmark = pytest.mark.processes

PROGRAM = """
import sys, threading, time
from pathlib import Path
from remuda.worker.profile import profiled

def spin(seconds):
    end_s = time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < end_s:
        number += 1

def outer(seconds):
    spin(seconds)

done = threading.Event()
waiting = threading.Thread(target=done.wait, name="patient")
waiting.start()
try:
    with profiled(Path(sys.argv[1]), "worker"):
        begin_s = time.perf_counter()
        time.sleep(0.1)  # or as much longer as a busy machine takes
        outer(3 * (time.perf_counter() - begin_s))
        if sys.argv[2:]:
            raise KeyError("as asked")
finally:
    done.set()
"""
ROW = re.compile(r" *([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9.]+)  (\S+)  (\S+):(\d+)")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)


def rows(text: str, thread: str) -> list[re.Match[str]]:
    """Of the first table of a thread, which is sorted by own time."""
    section = text.split(f"=== {thread}: ")[1].split("by all time:")[0]
    return [match for line in section.splitlines() if (match := ROW.fullmatch(line))]


def test_a_busy_function_is_the_top_entry_and_its_caller_is_charged_with_all_of_it(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "worker.txt").read_text()
    top = rows(text, "MainThread")[0]
    assert top[5] == "spin"
    assert top[6] == "<string>"
    own_percent, all_percent = float(top[2]), float(top[4])
    assert own_percent == all_percent  # it calls no other Python function
    assert 50 < own_percent <= 100  # three quarters, and what a busy machine takes beside it
    by_all = text.split("by all time:")[1]
    outer = next(match for line in by_all.splitlines() if (match := ROW.fullmatch(line)) and match[5] == "outer")
    assert float(outer[1]) == 0.0
    assert float(outer[4]) == pytest.approx(all_percent, abs=5.0)
    assert float(text.split("=== MainThread: ")[1].split(" s")[0]) >= 0.3
    assert sum(float(row[2]) for row in rows(text, "MainThread")) == pytest.approx(100.0, abs=1.0), "it adds up"
    stacks = [line.rsplit(" ", 1) for line in (tmp_path / "worker.folded").read_text().splitlines()]
    spinning = [(stack, int(value)) for stack, value in stacks if stack.endswith("spin (<string>)")]
    assert [stack for stack, _ in spinning] == ["MainThread;<module> (<string>);outer (<string>);spin (<string>)"]
    assert spinning[0][1] >= 200_000, "microseconds"


def test_a_late_signal_inside_a_look_is_charged_to_the_interrupted_function(monkeypatch: pytest.MonkeyPatch) -> None:
    real, late = signal.setitimer, iter([True])

    def again_at_once(which: int, seconds: float) -> object:
        if seconds and sys._getframe(2).f_code.co_name == "_look" and next(late, False):
            signal.raise_signal(signal.SIGALRM)  # as on a busy machine, before the look has returned
        return real(which, seconds)

    monkeypatch.setattr(signal, "setitimer", again_at_once)
    profiler = Profiler(interval_s=3600.0)
    profiler.start()
    try:
        signal.raise_signal(signal.SIGALRM)
    finally:
        profiler.stop()
    assert profiler.profile.looks == 2
    names = [code.co_name for sight in profiler.profile.seconds for code in sight.stack if sight.thread == "MainThread"]
    assert names
    assert not {"_look", "_set_timer"} & set(names)


def test_a_sample_while_it_stops_sets_no_timer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its signal would come when nobody handles it any more, and end the process before it wrote its profile."""
    real = signal.setitimer

    def sampled_once_more(which: int, seconds: float) -> object:
        result = real(which, seconds)
        if seconds == 0.0:
            signal.raise_signal(signal.SIGALRM)
        return result

    profiler = Profiler(interval_s=3600.0)
    profiler.start()
    monkeypatch.setattr(signal, "setitimer", sampled_once_more)
    try:
        profiler.stop()
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        real(signal.ITIMER_REAL, 0.0)
