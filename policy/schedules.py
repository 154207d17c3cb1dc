"""Settings that change in the course of a run. Imports no torch."""

from __future__ import annotations

from remuda.config.schema import BufferConfig


def linear(start: float, end: float, *, duration: int, at: int) -> float:
    """Go from `start` at 0 to `end` at `duration` in a straight line and stay there."""
    done = min(max(at / duration, 0.0), 1.0)
    return (1.0 - done) * start + done * end  # exact at both ends, unlike start + done * (end - start)


def importance_beta(buffer: BufferConfig, train_iter: int) -> float:
    """The exponent of the importance weights (Schaul et al. 2016, section 3.4): rises linearly to 1."""
    return linear(buffer.importance_exponent, 1.0, duration=buffer.importance_anneal_iters, at=train_iter)
