"""Tests of what measures, not of how fast anything is."""
