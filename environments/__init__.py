"""Environments for collectors and evaluators: built, seeded and described."""
