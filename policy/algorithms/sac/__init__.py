"""Soft actor-critic: the update rules for numbers and for counted actions, the acting side, the entry."""
