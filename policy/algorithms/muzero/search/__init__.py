"""The tree search of MuZero: all roots of a vector at once, one evaluation of the network per simulation."""
