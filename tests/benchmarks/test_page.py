"""The figures of the page: medians beside what was promised."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn", reason="pip install 'remuda[page]'")

from remuda.benchmarks.page import Served, promised


@pytest.mark.parametrize(("values", "met"), [([1.0, 9.0, 2.0], True), ([2.1, 2.2, 0.1], False)])
def test_the_median_is_what_counts(values: list[float], met: bool) -> None:
    figure = promised("x", "s", values, 2.0)
    assert (figure.ours, figure.met, figure.n) == (sorted(values)[1], met, 3)
    assert figure.ratio == sorted(values)[1] / 2.0


def test_a_link_leads_to_a_view() -> None:
    assert Served("http://127.0.0.1:1", "abc").link("run/a") == "http://127.0.0.1:1/#token=abc&/run/a"
