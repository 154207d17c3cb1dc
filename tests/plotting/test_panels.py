"""What a picture shows of which runs, and the message where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.plotting.errors import PlotError
from remuda.plotting.groups import Group, by_experiment
from remuda.plotting.panels import Axes, make_panels
from remuda.plotting.runs import find_runs
from remuda.tests.plotting.folders import make_run, ours, points

CURVE = points((0, 10.0), (100, 30.0), (200, 40.0))


def groups(folder: Path) -> list[Group]:
    return by_experiment(find_runs([folder]))


def test_performance_is_the_evaluations_return(tmp_path: Path) -> None:
    make_run(tmp_path / "a", CURVE, ours("dqn", 0))
    (panel,) = make_panels(groups(tmp_path), Axes())
    assert (panel.x, panel.y) == ("TotalEnvInteracts", "AverageTestEpRet")
    (curve,) = panel.curves
    assert (curve.label, curve.x.tolist(), curve.y.tolist()) == ("dqn", [0, 100, 200], [10, 30, 40])


@pytest.mark.parametrize("columns", [None, ("Epoch", "AverageEpRet", "Other", "TotalEnvInteracts", "LossQ", "Time")])
def test_performance_is_one_quantity_for_all_runs(tmp_path: Path, columns: tuple[str, ...] | None) -> None:
    make_run(tmp_path / "a", CURVE, ours("dqn", 0))
    make_run(
        tmp_path / "b", points((0, 8.0), evaluated=False), ours("vpg", 0), **({"columns": columns} if columns else {})
    )
    (panel,) = make_panels(groups(tmp_path), Axes())
    assert panel.y == "AverageEpRet"
    assert [curve.y.tolist() for curve in panel.curves] == [[5, 15, 20], [4]]


def test_several_quantities_over_anything_smoothed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", CURVE, ours("dqn", 0))
    make_run(tmp_path / "b", CURVE, ours("dqn", 1))
    axes = Axes("Time", ["LossQ", "Performance", "AverageTestEpRet"], smooth=3, estimator="max")
    loss, performance = make_panels(groups(tmp_path), axes)
    assert (loss.x, loss.y, performance.y) == ("Time", "LossQ", "AverageTestEpRet")
    assert loss.curves[0].x.tolist() == [0, 1, 2]
    assert performance.curves[0].y.tolist() == [20, 80 / 3, 35]
    assert performance.curves[0].runs == 2


def test_a_run_that_has_nothing_yet_is_named_and_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "a", CURVE, ours("dqn", 0))
    make_run(tmp_path / "b", points((0, 8.0), evaluated=False), ours("dqn", 1))
    make_run(tmp_path / "c", [], ours("ppo", 1))
    (panel,) = make_panels(groups(tmp_path), Axes(y=["AverageTestEpRet"]))
    assert [(curve.label, curve.runs) for curve in panel.curves] == [("dqn", 1)]
    assert [run.root.name for run in panel.missing] == ["b", "c"]


def test_no_run_has_anything_yet(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [], ours("dqn", 0))
    with pytest.raises(PlotError, match=r"AverageEpRet has no value over TotalEnvInteracts yet in .*a"):
        make_panels(groups(tmp_path), Axes())


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (Axes(x="TotalEnvInteract"), "no column TotalEnvInteract; did you mean TotalEnvInteracts?"),
        (Axes(y=["LossQ", "Qvals"]), "There are: Epoch, AverageEpRet, AverageTestEpRet, .*, Performance"),
    ],
)
def test_no_such_column(tmp_path: Path, axes: Axes, said: str) -> None:
    make_run(tmp_path / "a", CURVE, ours("dqn", 0))
    with pytest.raises(PlotError, match=said.replace("?", r"\?")):
        make_panels(groups(tmp_path), axes)


def test_evaluations_stand_where_their_checkpoints_were_saved(tmp_path: Path) -> None:
    """Not at the row that shows them, which may come later."""
    columns = ("AverageEpRet", "AverageTestEpRet", "TotalEnvInteracts", "TestEnvInteracts", "Time")
    rows: list[list[object]] = [[5.0, 9.0, 0, 0, 0.0], [6.0, "nan", 100, "nan", 1.0], [7.0, 30.0, 200, 110, 2.0]]
    make_run(tmp_path / "a", rows, ours("dqn", 0), columns=columns)
    over_steps = make_panels(groups(tmp_path), Axes(y=["AverageTestEpRet", "AverageEpRet"]))
    assert [panel.curves[0].x.tolist() for panel in over_steps] == [[0, 110], [0, 100, 200]]
    (over_time,) = make_panels(groups(tmp_path), Axes(x="Time"))
    assert over_time.curves[0].x.tolist() == [0, 2]
