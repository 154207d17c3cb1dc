"""R2D2: the update rule, the acting side, the entry."""
