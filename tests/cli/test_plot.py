"""`remuda plot`: what it prints and writes, and what it says where there is nothing to draw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.tests.cli.terminal import Terminal
from remuda.tests.client.plots.folders import make_run, ours, points


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two seeds of one experiment and one of another, seen from the folder they stand in."""
    make_run(tmp_path / "runs" / "dqn_s0", points((0, 10.0), (100, 20.0)), ours("dqn_s0", 0))
    make_run(tmp_path / "runs" / "dqn_s1", points((0, 20.0), (50, 30.0), (100, 40.0)), ours("dqn_s1", 1))
    make_run(tmp_path / "runs" / "ppo_s0", points((0, 5.0), (100, 6.0)), ours("ppo_s0", 0))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_picture_and_where_it_is(terminal: Terminal, runs: Path) -> None:
    ended = terminal.remuda("plot", "runs")
    assert (ended.code, ended.out) == (0, "plot.png\n")
    assert ended.err == "AverageTestEpRet over TotalEnvInteracts: dqn (2), ppo (1)\n"
    assert (runs / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (runs / "runs" / "dqn_s0").iterdir()) == ["config.json", "progress.txt"]


def test_the_curves_as_json_draw_nothing(terminal: Terminal, runs: Path) -> None:
    ended = terminal.remuda("plot", "runs/dqn", "--json")
    assert ended.code == 0
    assert json.loads(ended.out) == {
        "estimator": "mean",
        "smooth": 1,
        "panels": [
            {
                "x": "TotalEnvInteracts",
                "y": "AverageTestEpRet",
                "curves": [
                    {
                        "label": "dqn",
                        "runs": 2,
                        "x": [0.0, 50.0, 100.0],
                        "y": [15.0, 22.5, 30.0],
                        "low": [10.0, 15.0, 20.0],
                        "high": [20.0, 30.0, 40.0],
                        "count": [2.0, 2.0, 2.0],
                    }
                ],
            }
        ],
    }
    assert not (runs / "plot.png").exists()
