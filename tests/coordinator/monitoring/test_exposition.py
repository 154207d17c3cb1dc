"""The text format: what is written is read back, whatever a name holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.coordinator.monitoring.exposition import Family, Sample, text
from remuda.tests.coordinator.monitoring.exposition_reader import read


def test_the_format_by_hand() -> None:
    steps = Family("steps_total", "counter", "Steps.", (Sample(3, {"run": "a"}), Sample(4.5, {"run": "b", "x": "1"})))
    assert text([steps, Family.single("up", "gauge", "Up.", 1)]) == (
        "# HELP steps_total Steps.\n"
        "# TYPE steps_total counter\n"
        'steps_total{run="a"} 3\n'
        'steps_total{run="b",x="1"} 4.5\n'
        "# HELP up Up.\n"
        "# TYPE up gauge\n"
        "up 1\n"
    )


def test_a_backslash_a_quote_and_a_new_line_are_escaped() -> None:
    family = Family("up", "gauge", 'a\\b"c\nd', (Sample(1, {"run": 'a\\b"c\nd'}),))
    assert text([family]) == '# HELP up a\\\\b"c\\nd\n# TYPE up gauge\nup{run="a\\\\b\\"c\\nd"} 1\n'


@given(st.text(), st.text())
def test_any_text_comes_back_as_it_was(help: str, label: str) -> None:
    (family,) = read(text([Family("up", "gauge", help, (Sample(1, {"run": label}),))])).values()
    assert family.help == help
    assert family.value(run=label) == 1


@given(st.floats(allow_nan=False))
def test_any_number_comes_back_as_it_was(number: float) -> None:
    (family,) = read(text([Family.single("up", "gauge", "", number)])).values()
    assert family.value() == number


def test_what_is_no_number_is_written_as_the_format_says() -> None:
    written = text([Family.single("up", "gauge", "", math.nan)])
    assert written.endswith("up NaN\n")
    assert math.isnan(read(written)["up"].value())


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert text([Family("up", "gauge", "", (Sample(1, {"run": "a\ud800b"}),))]).encode().count(b"a?b") == 1


def test_a_family_without_samples_is_left_out() -> None:
    assert text([Family("up", "gauge", "Up.", ())]) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        "up 1",
        "# HELP up Up.\n# TYPE up gauge\nup one\n",
        "# HELP up Up.\n# TYPE up gauge\nup 1\nup 2\n",
        '# HELP up Up.\n# TYPE up gauge\nup{run="a"b"} 1\n',
        "# HELP up Up.\n# TYPE up gauge\ndown 1\n",
    ],
)
def test_the_reader_is_strict(wrong: str) -> None:
    with pytest.raises(AssertionError):
        read(wrong)
