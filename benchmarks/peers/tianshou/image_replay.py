"""Batches per second, or bytes per row, of tianshou with stacks of frames.

Arguments are whole or compressed, speed or memory, capacity, rows per batch and seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tianshou.data import Batch, PrioritizedVectorReplayBuffer


def resident_bytes() -> int:
    """Return what this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


how, what, capacity, batch_size, seconds = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
ENVS, EPISODE = 8, 1000
torch.set_num_threads(1)
compressed = {"stack_num": 4, "save_only_last_obs": True, "ignore_obs_next": True} if how == "compressed" else {}
rng = np.random.default_rng(0)
before = resident_bytes()
buffer = PrioritizedVectorReplayBuffer(capacity, buffer_num=ENVS, alpha=0.6, beta=0.4, **compressed)
recent = rng.integers(0, 256, (ENVS, 4, 84, 84), dtype=np.uint8)
for step in range(capacity // ENVS):
    seen, recent = recent, np.concatenate([recent[:, 1:], rng.integers(0, 256, (ENVS, 1, 84, 84), dtype=np.uint8)], 1)
    buffer.add(
        Batch(
            obs=seen,
            act=np.zeros(ENVS, np.int64),
            rew=np.ones(ENVS, np.float32),
            terminated=np.full(ENVS, step % EPISODE == EPISODE - 1),
            truncated=np.zeros(ENVS, bool),
            obs_next=recent,
            info=Batch(),
        ),
        buffer_ids=np.arange(ENVS),
    )
if what == "memory":
    print(json.dumps({"value": (resident_bytes() - before) / capacity}))
    sys.exit()
buffer.update_weight(np.arange(capacity), rng.random(capacity))
errors = rng.random((1024, batch_size))
for warm in range(3):  # its sum tree is compiled on the first call
    _, rows = buffer.sample(batch_size)
    buffer.update_weight(rows, errors[warm])
batches, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    batch, rows = buffer.sample(batch_size)
    buffer.update_weight(rows, errors[batches % 1024])
    batches += 1
print(json.dumps({"value": batches / elapsed_s}))
