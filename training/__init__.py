"""A training run, in both modes: what counts, what is sampled, when to save, evaluate and stop, and the journal."""
