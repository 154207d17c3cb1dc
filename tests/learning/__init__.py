"""Learning, shown by learning. `make learning` runs all of it; the default suite one seed."""
