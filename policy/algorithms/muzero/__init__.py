"""MuZero: a learned model of the environment, and a tree search in the model."""
