"""Lines about strangers: one now and then, however many there are."""

from __future__ import annotations

import pytest

from remuda.coordinator.throttled_lines import INTERVAL_S, ThrottledLines


def test_a_flood_becomes_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    throttled_lines = ThrottledLines(lambda: now_s)
    for step in range(1_000):
        now_s = 100.0 + step * INTERVAL_S / 100
        throttled_lines.say(f"stranger {step}")
    printed = capsys.readouterr().err.splitlines()
    assert printed == [f"stranger {step}" for step in range(0, 1_000, 100)]


def test_nobody_forges_a_line_or_controls_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ThrottledLines(lambda: 1.0).say("a name\n[2026-11-23] all is well\x1b[2J")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "a name"
    assert second == r" [2026-11-23] all is well\x1b[2J"
