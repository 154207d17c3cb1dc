"""What a number of episodes comes down to."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.evaluator.evaluate import Episode
from remuda.logbook.spread import Spread


def outcome(episodes: Sequence[Episode]) -> dict[str, float]:
    """Sum episodes up, under the names of the evaluator's log."""
    returns = Spread.of([episode.return_ for episode in episodes])
    lengths = Spread.of([episode.length for episode in episodes])
    return {
        "episodes": len(episodes),
        "reward_mean": returns.mean,
        "reward_std": returns.std,
        "reward_max": returns.max,
        "reward_min": returns.min,
        "length_mean": lengths.mean,
    }
