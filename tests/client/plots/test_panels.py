"""What a picture shows of which runs, and the message where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.client.plots.curves import Axes, Group, by_legend, by_settings, make_panels
from remuda.client.plots.runs import PlotError, Run, find_runs
from remuda.tests.client.plots.folders import make_run, ours, points

CURVE = points((0, 10.0), (100, 30.0), (200, 40.0))


def groups(folder: Path) -> list[Group]:
    return by_settings(find_runs([folder]))


@pytest.mark.parametrize("columns", [None, ("Epoch", "AverageEpRet", "Other", "TotalEnvInteracts", "LossQ", "Time")])
def test_performance_is_one_quantity_for_all_runs(tmp_path: Path, columns: tuple[str, ...] | None) -> None:
    make_run(tmp_path / "a", CURVE, ours("dqn", 0))
    make_run(
        tmp_path / "b", points((0, 8.0), evaluated=False), ours("vpg", 0), **({"columns": columns} if columns else {})
    )
    (panel,) = make_panels(groups(tmp_path), Axes())
    assert panel.y == "AverageEpRet"
    assert [curve.y.tolist() for curve in panel.curves] == [[5, 15, 20], [4]]


def test_a_run_that_has_nothing_yet_is_named_and_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "a", CURVE, ours("dqn", 0))
    make_run(tmp_path / "b", points((0, 8.0), evaluated=False), ours("dqn", 1))
    make_run(tmp_path / "c", [], ours("ppo", 1))
    (panel,) = make_panels(groups(tmp_path), Axes(y=["AverageTestEpRet"]))
    assert [(curve.label, curve.runs) for curve in panel.curves] == [("dqn", 1)]
    assert [run.root.name for run in panel.missing] == ["b", "c"]


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


ROWS = points((0, 9.0))


def made(tmp_path: Path, **configs: dict[str, object] | None) -> list[Run]:
    for folder, config in configs.items():
        make_run(tmp_path / folder, ROWS, config)
    return find_runs([tmp_path / folder for folder in configs])


def test_seeds_of_one_experiment_make_one_curve(tmp_path: Path) -> None:
    runs = made(tmp_path, a=ours("dqn_s0", 0), b=ours("dqn_s1", 1), c=ours("ppo", 1), d=ours("dqn", 7))
    first, second = by_settings(runs)
    assert (first.label, [run.root.name for run in first.runs]) == ("dqn", ["a", "b", "d"])
    assert (second.label, [run.root.name for run in second.runs]) == ("ppo", ["c"])


def test_one_name_with_different_settings_is_never_averaged(tmp_path: Path) -> None:
    runs = made(
        tmp_path,
        a=ours("dqn", 0, learning_rate=1e-3),
        b=ours("dqn", 1, learning_rate=1e-3),
        c=ours("dqn", 0, learning_rate=3e-4),
        d=ours("dqn", 0, learning_rate=3e-4, device="cuda"),
        e=ours("ppo", 0, learning_rate=0.5),
    )
    groups = by_settings(runs)
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("dqn (learning_rate=0.001)", 2),
        ("dqn (learning_rate=0.0003)", 1),
        ("dqn (learning_rate=0.0003, device=cuda)", 1),
        ("ppo", 1),
    ]


def test_a_legend_makes_one_curve_per_folder(tmp_path: Path) -> None:
    runs = made(tmp_path, a=ours("dqn", 0, learning_rate=1), b=ours("ppo", 0), c=ours("dqn", 0, learning_rate=2))
    groups = by_legend(runs, ["ours", "theirs", "ours"], 3)
    assert [(group.label, [run.root.name for run in group.runs]) for group in groups] == [
        ("ours", ["a", "c"]),
        ("theirs", ["b"]),
    ]
    with pytest.raises(PlotError, match="there are 2 --legend for 3 folders"):
        by_legend(runs, ["ours", "theirs"], 3)
