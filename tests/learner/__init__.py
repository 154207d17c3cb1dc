"""Tests of remuda.learner."""
