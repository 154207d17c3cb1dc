"""A policy for tests to publish."""

from __future__ import annotations

import numpy as np

from remuda.wire.messages import PolicyRef

STATE: dict[str, np.ndarray] = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array(3, np.int64),
    "c": np.zeros((0, 2)),
}
REF = PolicyRef(epoch=2, version=5, train_iter=50)


def never(warning: str) -> None:
    """Fail at a warning."""
    raise AssertionError(f"unexpected warning: {warning}")
