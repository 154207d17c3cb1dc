"""Twin delayed deep deterministic policy gradient: the update rule, the acting side, the entry."""
