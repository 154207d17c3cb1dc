"""Whether weights are finite: others must never act, be published or be saved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class NotFinite(ValueError):  # noqa: N818  (it says what happened)
    """Weights hold NaN or infinity; the message names the tensors."""


def require_finite(state: Mapping[str, np.ndarray]) -> None:
    """Raise NotFinite for a policy's state that holds NaN or infinity."""
    bad = [name for name, array in state.items() if not np.isfinite(array).all()]
    if bad:
        raise NotFinite(f"weights are NaN or infinite: {', '.join(bad)}")
