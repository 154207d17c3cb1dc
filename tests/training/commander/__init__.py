"""Tests of training/commander."""
