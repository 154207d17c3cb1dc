"""Updates the policy, publishes it, saves checkpoints."""
