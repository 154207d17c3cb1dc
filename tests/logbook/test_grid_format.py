"""Tables look exactly as promised."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabulate import tabulate

from remuda.logbook.lines import Value, grid, lines


def test_the_promised_table() -> None:
    assert grid({"cur_lr_avg": 0.001, "total_loss_avg": 0.098996}) == (
        "+-------+------------+----------------+\n"
        "| Name  | cur_lr_avg | total_loss_avg |\n"
        "+-------+------------+----------------+\n"
        "| Value | 0.001000   | 0.098996       |\n"
        "+-------+------------+----------------+"
    )


def test_integers_strings_and_lists_stay_what_they_are() -> None:
    values: dict[str, Value] = {"n": 12, "name": "1e3", "nan": float("nan"), "each": [9.0, 10]}
    assert grid(values) == (
        "+-------+----+------+-----+----------------+\n"
        "| Name  | n  | name | nan | each           |\n"
        "+-------+----+------+-----+----------------+\n"
        "| Value | 12 | 1e3  | nan | [9.000000, 10] |\n"
        "+-------+----+------+-----+----------------+"
    )


@pytest.mark.parametrize(("count", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_at_most_four_values_a_block_and_no_blank_block(count: int, blocks: int) -> None:
    text = grid({f"k{i}": i for i in range(count)})
    assert text.count("Name") == text.count("Value") == blocks
    assert all(row.count("|") <= 6 for row in text.splitlines())
    assert all(f"k{i}" in text for i in range(count))
    assert "\n\n" not in text


def test_numpy_scalars_are_numbers() -> None:
    values = cast("dict[str, Value]", {"a": np.float32(0.5), "b": np.int64(3), "c": np.float64(0.25)})
    assert lines(values) == "a: 0.500000\nb: 3\nc: 0.250000"


def test_lines_are_key_and_value() -> None:
    assert lines({"episode_count": 2, "reward_mean": 9.5, "each_reward": [9.0, 10.0]}) == (
        "episode_count: 2\nreward_mean: 9.500000\neach_reward: [9.000000, 10.000000]"
    )


def test_text_cannot_break_out_of_its_cell() -> None:
    assert len(grid({"a\nb": "x\n| y"}).splitlines()) == 5
    assert lines({"a": "x\nreward_mean: 999"}) == "a: x\\nreward_mean: 999"


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        grid(cast("dict[str, Value]", {"a": None}))


@given(st.lists(st.tuples(st.text("abc_-.é", min_size=1), st.text("xyz 0.", min_size=1)), min_size=1, max_size=4))
def test_a_block_is_what_tabulate_draws(items: list[tuple[str, str]]) -> None:
    values: dict[str, Value] = {name: text.strip() or "-" for name, text in items}
    rows = [["Name", *values], ["Value", *map(str, values.values())]]
    assert grid(values) == tabulate(rows, tablefmt="grid", disable_numparse=True)
