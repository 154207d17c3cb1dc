"""Learning curves beside stable-baselines3: `python -m remuda.benchmarks.learning --help`."""
