"""PPO and IMPALA: what they share, and an update rule each."""
