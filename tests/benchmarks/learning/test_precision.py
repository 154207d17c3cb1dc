"""What is made of the curves of two precisions: which rows count, and by how much means are apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remuda.benchmarks.learning.precision import ENVIRONMENTS, PRECISIONS, Curve, compared, curve, draw
from remuda.config.load import load_config


def of(precision: str, seed: int, *returns: float) -> Curve:
    return Curve("ppo", "float32" if precision == "float32" else "bfloat16", seed, (0, 10, 20), returns, 1.0)


def test_rows_without_an_evaluation_do_not_count() -> None:
    steps, returns, time_s = np.array([0.0, 5.0, 10.0]), np.array([9.0, np.nan, 30.0]), np.array([0.1, 0.2, 0.3])
    made = curve("dqn", "float32", 3, steps, returns, time_s)
    assert made == Curve("dqn", "float32", 3, (0, 10), (9.0, 30.0), 0.3)
    assert made.area == 19.5


def test_means_are_compared_in_standard_errors_of_their_difference() -> None:
    """Areas 10 and 14 against 15 and 19: variances of 8, so a standard error of sqrt(8 / 2 + 8 / 2)."""
    curves = [of("float32", 0, 10, 10, 10), of("float32", 1, 14, 14, 14)]
    curves += [of("bfloat16", 0, 15, 15, 15), of("bfloat16", 1, 19, 19, 19)]
    found = compared("ppo", curves)
    assert (found.float32, found.bfloat16) == (12.0, 17.0)
    assert found.spread == pytest.approx(8.0**0.5)
    assert found.apart == pytest.approx(5.0 / 8.0**0.5)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    curves = [
        Curve(algorithm, precision, seed, (0, 10), (1.0, 2.0), 1.0)
        for algorithm in ENVIRONMENTS
        for precision in PRECISIONS
        for seed in range(2)
    ]
    draw(curves, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("algorithm", ENVIRONMENTS)
def test_the_configs_have_products_that_are_lowered(algorithm: str) -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "configs" / f"precision_{algorithm}.yaml"
    config = load_config(path, overrides=["learner.precision=bfloat16"]).config
    assert config.policy.lowers_products
    assert (config.policy.type, config.env.id) == (algorithm, ENVIRONMENTS[algorithm])
