"""Deep Q-learning: the update rule, the acting side, the entry."""
