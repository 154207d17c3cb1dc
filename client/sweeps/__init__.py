"""Sweeps: many experiments from a grid or search, with names, configs and execution."""
