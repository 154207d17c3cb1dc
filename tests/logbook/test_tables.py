"""Tables grow, are never torn, continue without doubled rows, and are readable by anybody."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.logbook.progress import CsvSink, JsonLinesSink, ProgressRow, Table

NAMES = st.from_regex(r"[a-z_][a-z0-9_./-]{0,8}", fullmatch=True)
TEST: dict[str, Any] = {"test_returns": [9.0, 11.0], "test_lengths": [9, 11], "test_env_step": 0}
FIRST = ProgressRow(epoch=0, env_step=0, **TEST, losses={}, wall_s=0.5)
SECOND = ProgressRow(
    epoch=1,
    env_step=1_000,
    train_iter=60,
    episode=3,
    returns=[9.0, 11.0, 40.0],
    lengths=[9, 11, 40],
    losses={"LossQ": 0.5},
    metrics={"total_loss": 0.5, "cur_lr": 0.001},
    wall_s=2.5,
)
STATISTICS = ("mean", "std", "max", "min", "median")
COLUMNS = [
    "env_step", "train_iter", "episode", "wall_s",
    *(f"{role}/{quantity}_{statistic}" for role in ("collector", "evaluator") for quantity in ("reward", "length")
      for statistic in STATISTICS),
    "evaluator/env_step",
]  # fmt: skip


def table(path: Path, *columns: str, resumed: int | None = None) -> Table:
    return Table(path, ["env_step", *columns], separator=",", step_column="env_step", resumed_step=resumed)


def read(path: Path) -> list[dict[str, float]]:
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    return [dict(zip(header, map(float, row), strict=True)) for row in rows]


@pytest.mark.parametrize("columns", [["loss"], ["a", "a"], ["a,b"], ["a\tb"], [""], ["1st"]])
def test_names_that_would_break_it_are_refused_and_nothing_changes(tmp_path: Path, columns: list[str]) -> None:
    written = table(tmp_path / "t", "loss")
    with pytest.raises(ValueError, match="distinct names"):
        written.widen(columns)
    written.append({"env_step": 1, "loss": 0.5})
    assert (tmp_path / "t").read_text() == "env_step,loss\n1,0.5\n"
    written.close()


@settings(deadline=None)  # the disk decides how long it takes
@given(st.lists(st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=4), max_size=8))
def test_anything_can_be_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, float]]) -> None:
    path = tmp_path_factory.mktemp("table") / "t"
    written = table(path)
    for step, row in enumerate(rows):
        row["env_step"] = step
        if new := [name for name in row if name not in written.columns]:
            written.widen(new)
        written.append(row)
    written.close()
    found = read(path)
    assert len(found) == len(rows)
    for row, back in zip(rows, found, strict=True):
        assert {name: back[name] for name in row} == row
        assert all(math.isnan(back[name]) for name in back.keys() - row.keys())


def test_a_row_as_the_sinks_take_it() -> None:
    record = SECOND.record()
    assert list(record) == [*COLUMNS, "learner/total_loss", "learner/cur_lr"]
    assert {name: record[name] for name in ("env_step", "train_iter", "episode", "wall_s")} == {
        "env_step": 1_000, "train_iter": 60, "episode": 3, "wall_s": 2.5,
    }  # fmt: skip
    assert [record[f"collector/reward_{statistic}"] for statistic in STATISTICS] == [
        20.0, pytest.approx(math.sqrt((121 + 81 + 400) / 3)), 40.0, 9.0, 11.0,
    ]  # fmt: skip
    assert math.isnan(record["evaluator/length_median"])
    assert FIRST.record()["evaluator/length_median"] == 10.0


def test_the_csv_to_the_letter(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path / "progress.csv")
    sink.row(FIRST.record())
    sink.row(SECOND.record())
    sink.close()
    header, first, second = (tmp_path / "progress.csv").read_text().splitlines()
    assert header == ",".join([*COLUMNS, "learner/total_loss", "learner/cur_lr"])
    assert first == "0,0,0,0.5," + "nan," * 10 + "10.0,1.0,11.0,9.0,10.0," * 2 + "0,nan,nan"
    assert second.startswith("1000,60,3,2.5,20.0,")
    assert second.endswith(",nan,0.5,0.001")


def test_a_line_of_json_per_row_with_null_where_there_is_no_number(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "progress.jsonl")
    sink.row(FIRST.record())
    sink.row(SECOND.record())
    first, second = map(json.loads, (tmp_path / "progress.jsonl").read_text().splitlines())
    assert (first["env_step"], first["evaluator/reward_mean"], first["collector/reward_mean"]) == (0, 10.0, None)
    assert second["learner/total_loss"] == 0.5
    assert list(second) == list(SECOND.record())
    sink.close()


@pytest.mark.parametrize("kind", [CsvSink, JsonLinesSink])
def test_a_resumed_run_repeats_no_row(kind: type[CsvSink | JsonLinesSink], tmp_path: Path) -> None:
    path = tmp_path / "progress"
    sink = kind(path)
    for step in (0, 10, 20, 30):
        sink.row({"env_step": step, "old": 1.0})
    sink.close()
    with open(path, "a") as file:
        file.write('{"env_step": 4')  # torn
    again = kind(path, resumed_env_step=20)
    again.row({"env_step": 30, "old": 2.0})
    again.close()
    text = path.read_text().splitlines()
    if kind is CsvSink:
        assert text[1:] == ["0,nan,nan,nan,1.0", "10,nan,nan,nan,1.0", "20,nan,nan,nan,1.0", "30,nan,nan,nan,2.0"]
    else:
        assert [(row["env_step"], row["old"]) for row in map(json.loads, text)] == [(0, 1), (10, 1), (20, 1), (30, 2)]


@pytest.mark.parametrize("kind", [CsvSink, JsonLinesSink])
def test_a_file_that_is_something_else_is_left_alone(kind: type[CsvSink | JsonLinesSink], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("my notes\n")
    with pytest.raises(ValueError, match="cannot be continued"):
        kind(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "my notes\n"
