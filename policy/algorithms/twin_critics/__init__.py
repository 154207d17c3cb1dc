"""SAC, CrossQ, TD3 and IQL: an actor and critics, learned from replayed steps."""
