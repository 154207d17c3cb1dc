"""Batches per second that TorchRL samples and updates: arguments are capacity, rows per batch and seconds."""

from __future__ import annotations

import json
import sys
import time

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

capacity, batch_size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
# ReplayBuffer with a prioritized sampler is faster than TensorDictPrioritizedReplayBuffer, which adds its own columns.
buffer = ReplayBuffer(
    storage=LazyTensorStorage(capacity),
    sampler=PrioritizedSampler(capacity, alpha=0.6, beta=0.4),
    batch_size=batch_size,
)
buffer.extend(
    TensorDict(
        {
            "obs": torch.randn(capacity, 4),
            "action": torch.randint(0, 2, (capacity,)),
            "reward": torch.ones(capacity),
            "next_obs": torch.randn(capacity, 4),
            "discount": torch.full((capacity,), 0.99),
        },
        batch_size=[capacity],
    )
)
buffer.update_priority(torch.arange(capacity), torch.rand(capacity))
errors = torch.rand(1024, batch_size)
batches, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    batch, info = buffer.sample(return_info=True)
    buffer.update_priority(info["index"], errors[batches % 1024])
    batches += 1
print(json.dumps({"value": batches / elapsed_s}))
