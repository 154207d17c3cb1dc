"""The summary of a number of episodes."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.evaluator.evaluate import Episode
from remuda.logbook.statistics import Statistics


def outcome(episodes: Sequence[Episode]) -> dict[str, float]:
    """Summarise episodes, under the names of the evaluator's log."""
    returns = Statistics.of([episode.return_ for episode in episodes]).named("reward")
    lengths = Statistics.of([episode.length for episode in episodes]).named("length")
    return {"episodes": len(episodes), **returns, **lengths}
