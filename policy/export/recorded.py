"""Observations by which an exported file is compared with the policy that it is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Recorded:
    """Observations one after another."""

    observations: np.ndarray
    """[n, …], as policies take them."""
    begins: NDArray[np.bool_]
    """[n]: an episode begins with this observation, or what came before it is not known."""
    legal: NDArray[np.bool_] | None
    """[n, actions]: which actions were legal; None where environments do not say."""
    source: str
    """Where they are from, for people."""

    def __len__(self) -> int:
        return len(self.observations)
