"""Optimizers on one flat vector of parameters, by `learner.optimizer`."""
