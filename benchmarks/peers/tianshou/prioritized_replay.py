"""Batches per second that tianshou samples and updates: arguments are capacity, rows per batch and seconds."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from tianshou.data import Batch, PrioritizedVectorReplayBuffer

capacity, batch_size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
ENVS = 1000
torch.set_num_threads(1)
rng = np.random.default_rng(0)
buffer = PrioritizedVectorReplayBuffer(capacity, buffer_num=ENVS, alpha=0.6, beta=0.4)
for _ in range(capacity // ENVS):
    buffer.add(
        Batch(
            obs=rng.normal(size=(ENVS, 4)).astype(np.float32),
            act=rng.integers(0, 2, ENVS),
            rew=np.ones(ENVS, np.float32),
            terminated=np.zeros(ENVS, bool),
            truncated=np.zeros(ENVS, bool),
            obs_next=rng.normal(size=(ENVS, 4)).astype(np.float32),
            info=Batch(),
        ),
        buffer_ids=np.arange(ENVS),
    )
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
