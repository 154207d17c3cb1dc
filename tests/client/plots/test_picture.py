"""The picture itself: what text it has, that it shows what it should, and that it is the same twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.client.plots.curves import Curve, Line, Panel, combined
from remuda.client.plots.picture import FORMATS, draw

BLUE, VERMILION = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)
X = np.linspace(0, 20_000, 21)


def curve(label: str, *heights: float, end: int = 21) -> Curve:
    return combined(
        label, [Line(X[: end if at else 21], np.full(21, h)[: end if at else 21]) for at, h in enumerate(heights)]
    )


def panel(*curves: Curve, y: str = "AverageTestEpRet") -> Panel:
    return Panel("TotalEnvInteracts", y, curves, ())


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_the_same_twice(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        draw([panel(curve("dqn", 1.0, 2.0))], tmp_path / (name + suffix), estimator="mean")
    content = (tmp_path / f"a{suffix}").read_bytes()
    assert content.startswith({".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix])
    assert content == (tmp_path / f"b{suffix}").read_bytes()
