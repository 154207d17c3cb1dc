"""SAC and TD3: an actor and two critics, learned from replayed steps."""
