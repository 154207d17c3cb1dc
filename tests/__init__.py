"""Tests: what Remuda promises, one folder per package."""
