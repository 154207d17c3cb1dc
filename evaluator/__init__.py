"""Evaluates checkpoints by playing seeded episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.evaluator.play_policy import run_policy

__all__ = ["run_policy"]


def __getattr__(name: str) -> object:
    """Import a name on first use: the role itself needs none of them."""
    if name in __all__:
        from remuda.evaluator import play_policy

        return getattr(play_policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
