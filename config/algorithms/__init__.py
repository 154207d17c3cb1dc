"""The settings of each algorithm, which `policy` of a config holds."""
