"""cpprb's prioritized buffer, with rows of CartPole."""

from __future__ import annotations

import cpprb
import numpy as np

ALPHA = 0.6
BETA = 0.4


def buffer(capacity: int) -> cpprb.PrioritizedReplayBuffer:
    """Return an empty buffer with the same columns and dtypes as ours. No thread shares it, so it takes no locks."""
    columns = {
        "obs": {"shape": 4, "dtype": np.float32},
        "act": {"dtype": np.int64},
        "rew": {"dtype": np.float32},
        "next_obs": {"shape": 4, "dtype": np.float32},
        "discount": {"dtype": np.float32},
    }
    return cpprb.PrioritizedReplayBuffer(capacity, columns, alpha=ALPHA, check_for_update=False)


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random rows."""
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(count, 4)).astype(np.float32),
        "act": rng.integers(0, 2, count),
        "rew": np.ones(count, np.float32),
        "next_obs": rng.normal(size=(count, 4)).astype(np.float32),
        "discount": np.full(count, 0.99, np.float32),
    }
