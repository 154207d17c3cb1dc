"""Algorithms, their networks, and the file a policy is published in. Importing this package does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.policy.files.functions import load_action, load_policy, load_value

__all__ = ["load_action", "load_policy", "load_value"]


def __getattr__(name: str) -> object:
    """Import what needs torch when it is first asked for."""
    if name in __all__:
        from remuda.policy.files import functions

        return getattr(functions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
