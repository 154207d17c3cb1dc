"""Standard normal noise that remembers: by what actions are drawn that push in one direction for a while."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


class CorrelatedNoise:
    """A stationary autoregressive process of order one for each number: every draw is standard normal, and has the
    given correlation with the draw before. With 0 the draws are independent.

    On-policy algorithms explore by it (Hollenstein et al. 2024). Each action alone is distributed as the policy says;
    given the actions before it is not, so log probabilities are approximations then.
    """

    def __init__(self, correlation: float) -> None:
        """`correlation`: 0 <= correlation < 1."""
        self._kept, self._fresh = np.float32(correlation), np.float32(math.sqrt(1.0 - correlation**2))
        self._last: NDArray[np.float32] | None = None

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw float32 of this shape. Another shape than that of the draw before begins a new process."""
        noise: NDArray[np.float32] = rng.standard_normal(shape, np.float32)
        if self._kept and self._last is not None and self._last.shape == shape:
            noise *= self._fresh
            noise += self._kept * self._last
        self._last = noise
        return noise
