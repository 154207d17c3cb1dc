"""Tests that examples learn. `make learning` runs all of them; the default suite runs one seed."""
