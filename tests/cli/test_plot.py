"""`remuda plot`: what it prints and writes, and what it says where there is nothing to draw."""

from __future__ import annotations

import json
import sys
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


def test_each_option_reaches_the_curves(terminal: Terminal, runs: Path) -> None:
    ended = terminal.remuda(
        "plot", "runs/dqn", "runs/ppo_s0/", "-x", "Time", "-y", "Performance", "-y", "LossQ", "--smooth", 2,
        "--legend", "mine", "--legend", "mine", "--legend", "theirs",
        "--select", "runs", "--exclude", "s1", "--estimator", "median", "--json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    content = json.loads(ended.out)
    assert (content["estimator"], content["smooth"]) == ("median", 2)
    assert [(panel["x"], panel["y"]) for panel in content["panels"]] == [
        ("Time", "AverageTestEpRet"),
        ("Time", "LossQ"),
    ]
    for panel in content["panels"]:
        assert [(curve["label"], curve["runs"]) for curve in panel["curves"]] == [("mine", 1), ("theirs", 1)]
    counted = json.loads(terminal.remuda("plot", "runs", "--count", "--json").out)
    assert [curve["label"] for curve in counted["panels"][0]["curves"]] == ["dqn_s0", "dqn_s1", "ppo_s0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs", "-y", "LossQ", "EpLen"), "repeat the option for each value, as in -y A -y B"),
        (("runs", "-l", "a", "--count"), "give only one of --legend"),
        (("runs", "-o", "plot.jpg"), ".png, .pdf, .svg"),
        (("runs", "-o", "missing/plot.png"), "missing/plot.png cannot be written: No such file or directory"),
    ],
)
def test_wrong_input_makes_no_picture(terminal: Terminal, runs: Path, arguments: tuple[str, ...], said: str) -> None:
    ended = terminal.remuda("plot", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert [path.name for path in runs.iterdir()] == ["runs"]


def test_without_matplotlib_the_extra_is_named(terminal: Terminal, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ended = terminal.remuda("plot", "runs")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "drawing needs matplotlib: pip install 'remuda[plot]' (--json prints the numbers instead)\n"
    assert not (runs / "plot.png").exists()
