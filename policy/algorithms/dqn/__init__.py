"""Deep Q-learning, and PQN: update rules, acting side, entries."""
