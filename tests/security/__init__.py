"""Tests of what an attacker tries, see docs/security.md."""
