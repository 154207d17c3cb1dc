"""Networks and their training: layers, gradients, optimizers, normalisation."""
