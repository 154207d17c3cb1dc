"""Effective training time with shared inference: as effective_training, and an inference worker is killed every minute.

The herd has one inference worker, so both collectors wait until its nanny has started it again. The counters that are
checked at the end and the variables that make it shorter are those of effective_training; the time with kills is eight
minutes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from remuda.benchmarks.effective_training import LEAST_RATIO, train_and_hit
from remuda.benchmarks.figure import Figure, main
from remuda.benchmarks.served_herd import WORKERS, served_herd
from remuda.benchmarks.training_kept import kept_figures, plan

MINUTES = 8.0


def figures(peers: bool) -> list[Figure]:
    """What is kept of steps and updates; there is no peer."""
    if peers:
        return []
    with tempfile.TemporaryDirectory() as name, served_herd(Path(name), {**WORKERS, "inference": 1}) as herd:
        seen = train_and_hit(herd, Path(name) / "counts", plan(("inference",), MINUTES), ["inference.count=1"])
    return kept_figures("effective_inference", seen, LEAST_RATIO)


if __name__ == "__main__":
    main(figures)
