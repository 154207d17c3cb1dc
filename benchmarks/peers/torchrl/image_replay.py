"""Batches per second, or bytes per row, of TorchRL with stacks of frames.

Arguments are whole, speed or memory, capacity, rows per batch and seconds. Its storage keeps what it is given.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler


def resident_bytes() -> int:
    """Return what this process holds in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


what, capacity, batch_size, seconds = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
PART = 200
torch.set_num_threads(1)
before = resident_bytes()
buffer = ReplayBuffer(
    storage=LazyTensorStorage(capacity),
    sampler=PrioritizedSampler(capacity, alpha=0.6, beta=0.4),
    batch_size=batch_size,
)
for _ in range(capacity // PART):
    stacks = torch.randint(0, 256, (PART + 4, 84, 84), dtype=torch.uint8).unfold(0, 4, 1).movedim(-1, 1)
    rows = {
        "obs": stacks[:-1],
        "next_obs": stacks[1:],
        "action": torch.zeros(PART, dtype=torch.int64),
        "reward": torch.ones(PART),
        "discount": torch.full((PART,), 0.99),
    }
    buffer.extend(TensorDict(rows, batch_size=[PART]))
if what == "memory":
    print(json.dumps({"value": (resident_bytes() - before) / capacity}))
    sys.exit()
buffer.update_priority(torch.arange(capacity), torch.rand(capacity))
errors = torch.rand(1024, batch_size)
batches, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    batch, info = buffer.sample(return_info=True)
    buffer.update_priority(info["index"], errors[batches % 1024])
    batches += 1
print(json.dumps({"value": batches / elapsed_s}))
