"""Networks and what trains them: layers, gradients, the optimizer, normalisation."""
