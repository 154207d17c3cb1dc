"""From observations to actions: how policies answer, on the host or on a GPU."""
