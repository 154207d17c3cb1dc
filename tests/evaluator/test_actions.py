"""Actions are counted one by one, in buckets that depend on their space alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from remuda.evaluator.player import BUCKETS, ActionCounts
from remuda.logbook.statistics import put_together, trimmed
from remuda.policy.spaces import ActionSpec
from remuda.wire.messages import MOST_ACTION_DIMENSIONS, MOST_BUCKETS, Histogram


def box(*bounds: tuple[float | None, float | None]) -> ActionSpec:
    low, high = zip(*bounds, strict=True)
    return ActionSpec(None, dtype="float32", shape=(len(bounds),), low=low, high=high)


def histograms(action: ActionSpec, *steps: np.ndarray) -> dict[str, Histogram]:
    counts = ActionCounts(action)
    for actions in steps:
        counts.add(actions)
    return counts.histograms()


def test_discrete_actions_have_a_bucket_each() -> None:
    found = histograms(ActionSpec(3, start=-1), np.array([-1, 1]), np.array([1, 1, -1]))
    assert found == {
        "action": Histogram(left=-1.5, rights=[-0.5, 0.5, 1.5], counts=[2, 0, 3], total=1.0, total_squares=5.0)
    }


def test_each_of_several_integers_has_a_histogram() -> None:
    spec = ActionSpec(None, shape=(2,), counts=(2, 3), starts=(0, -1))
    found = histograms(spec, np.array([[0, -1], [1, 1]]), np.array([[1, 1]]))
    assert found == {
        "action_0": Histogram(left=-0.5, rights=[0.5, 1.5], counts=[1, 2], total=2.0, total_squares=2.0),
        "action_1": Histogram(left=-1.5, rights=[-0.5, 0.5, 1.5], counts=[1, 0, 2], total=1.0, total_squares=3.0),
    }


def test_each_number_of_a_box_has_a_histogram_between_its_bounds() -> None:
    found = histograms(box((-2.0, 2.0), (0.0, 1.0)), np.array([[-2.0, 0.0], [2.0, 0.5], [2.0, 1.0]], np.float32))
    first, second = found["action_0"], found["action_1"]
    assert (first.left, first.rights[-1], first.counts[0], first.counts[-1]) == (-2.0, 2.0, 1, 2)
    assert (second.left, second.rights[-1], second.total) == (0.0, 1.0, 1.5)
    assert sum(second.counts) == 3


@pytest.mark.parametrize("bounds", [(None, None), (0.0, None), (-3e38, 3e38), (1.0, 1.0)])
def test_a_number_without_bounds_is_counted_in_buckets_that_grow(bounds: tuple[float | None, float | None]) -> None:
    values = np.array([[-500.0], [-0.5], [0.0], [0.5], [0.52], [3e38]], np.float32)
    found = histograms(box(bounds), values)["action_0"]
    edges = np.array([found.left, *found.rights])
    assert sum(found.counts) == 6
    assert len(found.counts) <= MOST_BUCKETS
    assert (np.diff(edges) > 0).all()
    np.testing.assert_allclose(edges, -edges[::-1])
    assert found.counts[int(np.searchsorted(edges, 0.5)) - 1] == 2, "close to each other"
    assert math.isfinite(found.total_squares)


def test_shares_of_an_evaluation_are_put_together() -> None:
    spec, rng = box((-1.0, 1.0), (None, None)), np.random.default_rng(0)
    steps = [rng.normal(size=(5, 2)).astype(np.float32) for _ in range(8)]
    whole, first, second = (histograms(spec, *part) for part in (steps, steps[:3], steps[3:]))
    for name, histogram in whole.items():
        both = put_together(first[name], second[name])
        assert both.counts == histogram.counts
        assert both.total == pytest.approx(histogram.total)
    assert trimmed(whole["action_1"]).left > -100.0


def test_of_many_actions_or_numbers_there_are_no_more_buckets_and_histograms_than_fit() -> None:
    found = histograms(ActionSpec(1_000), np.arange(1_000))["action"]
    assert len(found.counts) == BUCKETS <= MOST_BUCKETS
    assert sum(found.counts) == 1_000
    assert max(found.counts) - min(found.counts) <= 1
    spec = ActionSpec(None, dtype="float32", shape=(5, 4), low=(-1.0,) * 20, high=(1.0,) * 20)
    several = histograms(spec, np.zeros((2, 5, 4), np.float32))
    assert list(several) == [f"action_{number}" for number in range(MOST_ACTION_DIMENSIONS)]
