"""Configs of runs of the algorithm that checks its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

UNROLL_STEPS, N_STEP = 3, 2
NUM_ENVS = 3
CHUNK_ENV_STEPS = 4
"""Fewer than a row looks ahead: windows lie over several chunks."""
MAX_ENV_STEPS = 400


def unrolled(
    notes: Path, *, images: bool = False, prioritized: bool = False, episodes: int = 0, processes: bool = False
) -> dict[str, Any]:
    """Settings of a short run; all steps are the collectors' where evaluations have 0 `episodes`. `notes` is a folder:
    see trails.noted. With `processes` the environments of a collector are in others."""
    algorithm, trails = "remuda.tests.policy.unrolled.algorithm", "remuda.tests.policy.unrolled.trails"
    return {
        "name": "unrolled",
        "seed": 5,
        "env": {
            "make": f"{trails}:make",
            "kwargs": {"notes": str(notes), "images": images},
            "num_envs": NUM_ENVS,
            "vectorization": "async" if processes else "sync",  # no copy is stepped to be timed
        },
        "policy": {
            "type": f"{algorithm}:Unrolled",
            "unroll_steps": UNROLL_STEPS,
            "n_step": N_STEP,
            "notes": str(notes),
        },
        "learner": {"batch_size": 16, "publish_interval_iters": 5, "prefetch_batches": 4},
        "collector": {"count": 2, "chunk_env_steps": CHUNK_ENV_STEPS},
        "evaluator": {"episodes": episodes, "window_episodes": 5, "interval_env_steps": 200},
        "buffer": {"capacity": 300, "min_rows": 40, "samples_per_insert": 8, "prioritized": prioritized},
        "checkpoint": {"interval_env_steps": 100},
        "stop": {"max_env_steps": MAX_ENV_STEPS},
        "log": {"interval_train_iters": 10, "progress_interval_env_steps": 50},
    }
