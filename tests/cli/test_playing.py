"""Playing episodes: what Ctrl-C may cut in two, and what not."""

from __future__ import annotations

import signal

import pytest

from remuda.cli import playing


def test_ctrl_c_does_not_fall_between_counting_an_episode_and_showing_it() -> None:
    done: list[str] = []

    def count_and_show() -> None:
        with playing._ctrl_c_waits():  # pyright: ignore[reportPrivateUsage]
            done.append("counted")
            signal.raise_signal(signal.SIGINT)
            done.append("shown")
        done.append("too far")

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            count_and_show()
        assert done == ["counted", "shown"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, former)


def test_another_handler_is_left_alone() -> None:
    heard: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with playing._ctrl_c_waits():  # pyright: ignore[reportPrivateUsage]
            signal.raise_signal(signal.SIGINT)
            assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, former)
