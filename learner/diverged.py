"""A run that has diverged: gradients or weights are not finite any more. It keeps the checkpoints from before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from remuda.policy.saved_state import NotFinite, require_finite
from remuda.worker.serve import HopelessError

_ADVICE = (
    "the checkpoints and the model that were saved before are kept; try a lower learner.learning_rate or "
    "learner.max_grad_norm, and look for extreme rewards and observations"
)


class DivergedError(HopelessError):
    """Training has diverged."""

    def __init__(self, what: str) -> None:
        super().__init__(f"training has diverged: {what}; {_ADVICE}")


def finite(state: Mapping[str, np.ndarray], *, train_iter: int) -> Mapping[str, np.ndarray]:
    """Return a policy's state. Raises DivergedError if a number in it is not finite."""
    try:
        require_finite(state)
    except NotFinite as error:
        raise DivergedError(f"after update {train_iter}, {error}") from error
    return state
