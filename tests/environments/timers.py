"""What `auto` is told about the length of a step, in place of a measurement."""

from __future__ import annotations

from remuda.environments.lanes import Copies


def quick(copies: Copies) -> float:
    """A step so short that processes never pay, on any machine."""
    return 1e-6
