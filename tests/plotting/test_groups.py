"""Which runs make one curve, and what it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.plotting.errors import PlotError
from remuda.plotting.groups import by_experiment, by_legend, one_by_one
from remuda.plotting.runs import Run, find_runs
from remuda.tests.plotting.folders import make_run, ours, points

ROWS = points((0, 9.0))


def made(tmp_path: Path, **configs: dict[str, object] | None) -> list[Run]:
    for folder, config in configs.items():
        make_run(tmp_path / folder, ROWS, config)
    return find_runs([tmp_path / folder for folder in configs])


def test_seeds_of_one_experiment_make_one_curve(tmp_path: Path) -> None:
    runs = made(tmp_path, a=ours("dqn_s0", 0), b=ours("dqn_s1", 1), c=ours("ppo", 1), d=ours("dqn", 7))
    first, second = by_experiment(runs)
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
    groups = by_experiment(runs)
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("dqn (learning_rate=0.001)", 2),
        ("dqn (learning_rate=0.0003)", 1),
        ("dqn (learning_rate=0.0003, device=cuda)", 1),
        ("ppo", 1),
    ]


def test_a_setting_goes_by_its_whole_name_where_the_last_part_is_taken(tmp_path: Path) -> None:
    left, right = ours("dqn", 0, type="a"), ours("dqn", 0, type="b")
    left["policy"] = right["policy"] = {"type": "dqn"}
    assert [group.label for group in by_experiment(made(tmp_path, a=left, b=right))] == [
        "dqn (learner.type=a)",
        "dqn (learner.type=b)",
    ]


def test_loops_of_peoples_own_are_told_apart_by_their_settings_too(tmp_path: Path) -> None:
    configs: list[dict[str, object]] = [
        {"name": "cem", "population": size, "seed": seed} for size in (8, 16) for seed in (0, 1)
    ]
    groups = by_experiment(made(tmp_path, a=configs[0], b=configs[1], c=configs[2], d=configs[3]))
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("cem (population=8)", 2),
        ("cem (population=16)", 2),
    ]


def test_longer_and_shorter_runs_of_one_experiment_are_one(tmp_path: Path) -> None:
    short, long = ours("dqn", 0), ours("dqn", 1)
    short["stop"], long["stop"] = {"max_env_steps": 10}, {"max_env_steps": 20}
    (group,) = by_experiment(made(tmp_path, a=short, b=long))
    assert len(group.runs) == 2


def test_a_legend_makes_one_curve_per_folder(tmp_path: Path) -> None:
    runs = made(tmp_path, a=ours("dqn", 0, learning_rate=1), b=ours("ppo", 0), c=ours("dqn", 0, learning_rate=2))
    groups = by_legend(runs, ["ours", "theirs", "ours"], 3)
    assert [(group.label, [run.root.name for run in group.runs]) for group in groups] == [
        ("ours", ["a", "c"]),
        ("theirs", ["b"]),
    ]
    with pytest.raises(PlotError, match="there are 2 --legend for 3 folders"):
        by_legend(runs, ["ours", "theirs"], 3)


def test_one_by_one_under_as_much_of_the_path_as_tells_them_apart(tmp_path: Path) -> None:
    for path in ("x/s0", "x/s1", "y/s2"):
        make_run(tmp_path / path, ROWS)
    assert [group.label for group in one_by_one(find_runs([tmp_path]))] == ["s0", "s1", "s2"]
    make_run(tmp_path / "y" / "s0", ROWS)
    assert [group.label for group in one_by_one(find_runs([tmp_path]))] == ["x/s0", "x/s1", "y/s0", "y/s2"]
