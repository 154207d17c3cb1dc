"""Bootstrapped DQN: the update rule, the acting side, the entry."""
