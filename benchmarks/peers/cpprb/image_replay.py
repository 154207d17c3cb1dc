"""Batches per second, or bytes per row, of cpprb with stacks of frames.

Arguments are whole or compressed, speed or memory, capacity, rows per batch and seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import cpprb
import numpy as np


def resident_bytes() -> int:
    """Return what this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


how, what, capacity, batch_size, seconds = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
EPISODE = 1000
columns = {
    "obs": {"shape": (84, 84, 4), "dtype": np.uint8},
    "act": {"dtype": np.int64},
    "rew": {"dtype": np.float32},
    "discount": {"dtype": np.float32},
}
options = {"next_of": "obs", "stack_compress": "obs"} if how == "compressed" else {}
if how == "whole":
    columns["next_obs"] = columns["obs"]
rng = np.random.default_rng(0)
before = resident_bytes()
buffer = cpprb.PrioritizedReplayBuffer(capacity, columns, alpha=0.6, check_for_update=False, **options)
for _ in range(capacity // EPISODE):
    frames = rng.integers(0, 256, (84, 84, EPISODE + 4), dtype=np.uint8)
    for first in range(0, EPISODE, 100):  # in parts, so that copies on the way do not count as its memory
        stacks = np.stack([frames[..., t : t + 4] for t in range(first, first + 101)])
        buffer.add(
            obs=stacks[:-1],
            next_obs=stacks[1:],
            act=np.zeros(100, np.int64),
            rew=np.ones(100, np.float32),
            discount=np.full(100, 0.99, np.float32),
        )
    buffer.on_episode_end()
if what == "memory":
    print(json.dumps({"value": (resident_bytes() - before) / capacity}))
    sys.exit()
rows = buffer.get_stored_size()
buffer.update_priorities(np.arange(rows), rng.random(rows))
errors = rng.random((1024, batch_size))
batches, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    batch = buffer.sample(batch_size, beta=0.4)
    buffer.update_priorities(batch["indexes"], errors[batches % 1024])
    batches += 1
print(json.dumps({"value": batches / elapsed_s}))
