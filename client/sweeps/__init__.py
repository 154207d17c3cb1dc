"""Sweeps: many experiments from one grid or search, with names, configs and execution."""
