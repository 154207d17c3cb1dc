"""Learning curves from run folders: reading, grouping by seed, averaging, drawing."""
