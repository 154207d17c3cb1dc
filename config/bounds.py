"""Bounds that a setting shares with the message it travels in: what a config may say, a message can carry."""

from __future__ import annotations

MOST_EVALUATION_EPISODES = 100_000
"""Of one evaluation, all evaluators together: the results of all of them fit into one message."""
MOST_OPPONENTS = 1_000
"""Older checkpoints of a policy that play against newer ones, in self-play."""
MOST_COLLECTED = 50
"""Metrics of an algorithm that collectors report: every announcement of a chunk holds them."""
