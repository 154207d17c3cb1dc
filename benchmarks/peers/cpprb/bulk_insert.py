"""Rows per second that cpprb takes in: arguments are capacity, rows per call and seconds."""

from __future__ import annotations

import json
import sys
import time

import cartpole

capacity, block, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
buffer = cartpole.buffer(capacity)
columns = cartpole.rows(block)
for _ in range(-(-capacity // block)):
    buffer.add(**columns)
calls, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    buffer.add(**columns)
    calls += 1
print(json.dumps({"value": calls * block / elapsed_s}))
