"""Where a second run ends, so that it can be compared with the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.client.reproducing import _ended_itself  # pyright: ignore[reportPrivateUsage]
from remuda.config.load import load_settings
from remuda.wire.messages import CheckpointRecord


@pytest.mark.parametrize(("reward", "ended"), [(0.0, True), (-2.0, False), (None, False)])
def test_a_run_has_ended_by_itself_where_a_return_has_reached_the_stop_value(
    reward: float | None, ended: bool, tmp_path: Path
) -> None:
    settings = {"name": "a", "env": {"id": "Pendulum-v1"}, "stop": {"stop_value": -1.0}}
    last = CheckpointRecord(10, 80, 1.5, reward, "iteration_10.pth.tar", "0" * 64, "2026-11-22T21:03:49+00:00")
    assert _ended_itself(load_settings(settings, folder=tmp_path), last) is ended
