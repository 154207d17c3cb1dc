"""Sweeps: many runs from a grid or search, with names, configs and execution."""
