"""Rainbow: distributional Q-learning with noisy networks; the update rule, the acting side, the entry."""
