"""Tests of training/replay."""
