"""Names that MuZero's declaration shares with its acting side. Imports no torch."""

from __future__ import annotations

SEARCH_POLICY, ROOT_VALUE = "search_policy", "root_value"
"""Columns that are recorded: the share of the search's visits, [actions], and the value it found."""
TEMPERATURE = "collect_mcts_temperature"
"""Names the exploration."""
VISIT_ENTROPY, COMPLETED_VALUE = "visit_entropy_mean", "completed_value_mean"
"""Metrics that collectors report of their searches: the entropy of the visits in nats, and the value of the root."""
