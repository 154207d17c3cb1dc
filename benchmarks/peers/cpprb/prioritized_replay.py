"""Batches per second that cpprb samples and updates: arguments are capacity, rows per batch and seconds."""

from __future__ import annotations

import json
import sys
import time

import cartpole
import numpy as np

capacity, batch_size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
buffer = cartpole.buffer(capacity)
buffer.add(**cartpole.rows(capacity))
errors = np.random.default_rng(0).random((1024, batch_size))
everything = np.arange(capacity)
buffer.update_priorities(everything, np.random.default_rng(1).random(capacity))
batches, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    batch = buffer.sample(batch_size, beta=cartpole.BETA)
    buffer.update_priorities(batch["indexes"], errors[batches % 1024])
    batches += 1
print(json.dumps({"value": batches / elapsed_s}))
