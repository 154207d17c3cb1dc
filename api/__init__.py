"""Runs from scripts and notebooks; `import remuda` has the names."""
