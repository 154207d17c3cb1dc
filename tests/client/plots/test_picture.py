"""The picture itself: what text it has, that it shows what it should, and that it is the same twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from numpy.typing import NDArray

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


def texts(path: Path) -> list[str]:
    """What an SVG says, in the order in which it is drawn."""
    return [re.sub(r"<[^>]*>", "", text) for text in re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(), re.S)]


def pixels(path: Path) -> NDArray[np.int64]:
    """[height, width, 3]."""
    read: Any = image.imread(path)
    return np.asarray(read[..., :3] * 255 + 0.5).astype(np.int64)


def share(picture: NDArray[np.int64], colour: tuple[int, int, int]) -> float:
    """Of the pixels that have this colour."""
    return float((picture == np.array(colour)).all(axis=-1).mean())


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_the_same_twice(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        draw([panel(curve("dqn", 1.0, 2.0))], tmp_path / (name + suffix), estimator="mean")
    content = (tmp_path / f"a{suffix}").read_bytes()
    assert content.startswith({".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix])
    assert content == (tmp_path / f"b{suffix}").read_bytes()


def test_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    draw([panel(curve("dqn", 100.0, 200.0), curve("ppo", 300.0, 400.0))], path, estimator="mean")
    said = texts(path)
    assert "Environment steps" in said
    assert "Evaluation return" in said
    assert {"0", "5k", "10k", "20k"} <= set(said), "all in one unit"
    assert said[-3:] == ["mean ± standard deviation over 2 runs", "dqn", "ppo"]


def test_one_legend_for_all_panels_and_no_axes_without_curves(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    both = (curve("dqn", 1.0, 2.0), curve("ppo", 3.0, 4.0))
    names = ["AverageTestEpRet", "EpLen", "LossQ", "Time", "Epoch"]
    draw([panel(*both, y=name) for name in names], path, estimator="mean")
    said = texts(path)
    assert said.count("Environment steps") == 5
    assert (said.count("dqn"), said.count("ppo")) == (1, 1)
    assert said[-1] == "ppo"


def test_curves_bands_and_colours_are_there(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    draw([panel(curve("dqn", 0.0, 10.0), curve("ppo", 100.0))], path, estimator="mean")
    picture = pixels(path)
    assert picture.shape[:2] == (720 + 2 * 38, 1080), "the panel and two lines of legend"
    for colour in (BLUE, VERMILION):
        assert share(picture, colour) > 0.001
    bluish = (picture[..., 2] > picture[..., 0] + 20) & (picture[..., 2] < 250)
    reddish = (picture[..., 0] > picture[..., 2] + 20) & (picture[..., 0] < 255)
    assert bluish.mean() > 3 * reddish.mean(), "a band of ten around two lines of one"


def test_a_curve_is_faint_where_seeds_are_missing(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.png", tmp_path / "part.png"
    draw([panel(curve("a" * 60, 5.0, 5.0))], whole, estimator="mean")
    draw([panel(curve("a" * 60, 5.0, 5.0, end=11))], part, estimator="mean")
    assert share(pixels(part), BLUE) < 0.65 * share(pixels(whole), BLUE)
