"""Whether several ranks gain something is measured with the first batches, and said."""

from __future__ import annotations

import pytest

from remuda.learner.ranks.trial import MEASURED, WARM_UP, RanksTrial


def tried(*, computing_s: float, update_s: float) -> RanksTrial:
    """A trial in which rank 0 computes so long for a whole batch, and an update takes so long with all ranks."""
    trial = RanksTrial(2)
    while not trial.over:
        if trial.alone:
            trial.note(update_s=99.0, computing_s=computing_s)
        else:
            trial.note(update_s=update_s, computing_s=99.0)
    return trial


def test_ranks_that_take_less_time_are_of_use() -> None:
    verdict = tried(computing_s=0.1, update_s=0.06).verdict()
    assert verdict.faster
    assert verdict.text == "2 ranks take 60 ms for a batch, and one would take about 100 ms"


@pytest.mark.parametrize("update_s", [0.0005, 0.0002])
def test_ranks_that_take_as_long_or_longer_are_not(update_s: float) -> None:
    verdict = tried(computing_s=0.0002, update_s=update_s).verdict()
    assert not verdict.faster
    assert verdict.text.endswith("0.2 ms: they gain nothing, so set learner.ranks to 1 or learn from larger batches")


def test_first_batches_and_interruptions_do_not_count() -> None:
    """A median of 20 forgives a few that took longer, and the first of each kind are not measured."""
    trial = RanksTrial(2)
    for batch in range(2 * (WARM_UP + MEASURED)):
        assert trial.alone == (batch < WARM_UP + MEASURED)
        assert not trial.over
        first = batch % (WARM_UP + MEASURED) < WARM_UP + 3
        trial.note(update_s=50.0 if first else 0.3, computing_s=50.0 if first else 0.2)
    assert trial.over
    assert trial.verdict().text.startswith("2 ranks take 300 ms for a batch, and one would take about 200 ms:")
