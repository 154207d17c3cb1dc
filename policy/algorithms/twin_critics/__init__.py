"""What SAC and TD3 have in common: an actor and two critics that learn from replayed steps."""
