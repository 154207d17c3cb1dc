"""Many experiments from one grid: their names, their configs, and running them to the end."""
