"""MuZero's tree search: all roots of a vector at once, and an evaluation of the network per simulation."""
