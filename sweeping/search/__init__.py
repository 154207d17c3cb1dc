"""Sweeps that search: Optuna chooses the settings of each trial by the results of those before."""
