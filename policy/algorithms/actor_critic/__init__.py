"""PPO and IMPALA: common parts, and an update rule each."""
