"""Tests of remuda.evaluator."""
