"""What algorithms with action values report."""

from __future__ import annotations

MONITORED = ("cur_lr", "total_loss", "q_value", "target_q_value", "td_error", "grad_norm")
WITH_STATISTICS = ("total_loss", "q_value", "td_error", "grad_norm")
Q_VALUE_COLUMNS = {
    "AverageQVals": "q_value",
    "StdQVals": "q_value_std",
    "MaxQVals": "q_value_max",
    "MinQVals": "q_value_min",
}
"""Of progress.txt, for every algorithm whose metric `q_value` has statistics; see Declaration."""
LOSS_COLUMNS = {**Q_VALUE_COLUMNS, "LossQ": "total_loss"}
"""What DQN, Rainbow and R2D2 report; see Declaration."""
