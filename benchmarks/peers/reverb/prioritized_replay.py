"""Batches per second that Reverb samples and updates: arguments are capacity, rows per batch and seconds."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import reverb
import tensorflow as tf

capacity, batch_size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
row = {
    "obs": np.zeros(4, np.float32),
    "action": np.int64(0),
    "reward": np.float32(1),
    "next_obs": np.zeros(4, np.float32),
    "discount": np.float32(0.99),
}
signature = {name: tf.TensorSpec(np.shape(value), np.asarray(value).dtype) for name, value in row.items()}
server = reverb.Server(
    tables=[
        reverb.Table(
            name="replay",
            sampler=reverb.selectors.Prioritized(0.6),
            remover=reverb.selectors.Fifo(),
            max_size=capacity,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=signature,
        )
    ]
)
client = reverb.Client(f"localhost:{server.port}")  # a server of the same process is reached without sockets
rng = np.random.default_rng(0)
with client.trajectory_writer(num_keep_alive_refs=1) as writer:
    for number, priority in enumerate(rng.random(capacity).tolist()):
        writer.append(row)
        writer.create_item("replay", priority, {name: column[-1] for name, column in writer.history.items()})
        if number % 100 == 99:
            writer.flush()
# Batches come ahead of time, from threads of Reverb's own, as its documentation shows it.
batches = reverb.TimestepDataset.from_table_signature(
    f"localhost:{server.port}", "replay", max_in_flight_samples_per_worker=2 * batch_size
).batch(batch_size)
errors = rng.random((1024, batch_size)).tolist()
done, stream = 0, iter(batches)
next(stream)
started_s = time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    sample = next(stream)
    client.mutate_priorities("replay", dict(zip(sample.info.key.numpy().tolist(), errors[done % 1024], strict=True)))
    done += 1
print(json.dumps({"value": done / elapsed_s}))
