"""How many threads numerical libraries use: one per process, and more for large updates where cores are free."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""More threads do not help small networks, and slow them down when other cores are busy. A process that is forked must
not have any threads."""
FOLLOWS = "REMUDA_THREADS_FOLLOW"
"""Is set where Remuda has chosen the number of threads, so that it may use more for large updates. Where the
environment named one before, that stays."""


def bounded(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child process: one thread, where `environment` does not say otherwise."""
    chosen = {} if ONE_THREAD.keys() & environment.keys() else {FOLLOWS: "1"}
    return {**ONE_THREAD, **chosen, **environment}


def bound_threads() -> None:
    """Limit numerical libraries to one thread: several workers share a machine, and small networks do not gain by more.

    Environment variables that are set already are kept. If torch was imported already, it is limited directly.
    """
    os.environ.update(bounded(os.environ))
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def may_follow() -> bool:
    """Whether updates may use more threads where cores are free: False if the environment names a number."""
    return FOLLOWS in os.environ
