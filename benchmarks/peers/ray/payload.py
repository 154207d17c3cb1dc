"""Bytes/s from one process through Ray's object store into an array of another: put, get, copy."""

from __future__ import annotations

import json
import time

import numpy as np
import ray

CHUNK_BYTES = 1 << 20
WARM_UP = 32
COUNT = 512
IN_FLIGHT = 8
RING_CHUNKS = 64


@ray.remote(num_cpus=1)
class Collector:
    """Puts chunks into the object store."""

    def __init__(self) -> None:
        self._chunk = np.random.default_rng(0).integers(0, 255, CHUNK_BYTES, np.uint8)

    def chunk(self) -> list[ray.ObjectRef]:
        """A reference to a new chunk (in a list, so that it is not resolved)."""
        return [ray.put(self._chunk)]


def transfer(collector: ray.actor.ActorHandle, ring: np.ndarray, count: int) -> float:
    """GB/s of `count` chunks, IN_FLIGHT of them on their way."""
    begin_s = time.perf_counter()
    waiting = [collector.chunk.remote() for _ in range(IN_FLIGHT)]
    sent = IN_FLIGHT
    for number in range(count):
        (reference,) = ray.get(waiting.pop(0))
        ring[number % RING_CHUNKS] = ray.get(reference)
        if sent < count:
            waiting.append(collector.chunk.remote())
            sent += 1
    return count * CHUNK_BYTES / (time.perf_counter() - begin_s) / 1e9


def main() -> None:
    """Print GB/s."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    collector = Collector.remote()
    ring = np.zeros((RING_CHUNKS, CHUNK_BYTES), np.uint8)
    transfer(collector, ring, WARM_UP)
    print(json.dumps({"value": transfer(collector, ring, COUNT), "ray": ray.__version__}))
    ray.shutdown()


if __name__ == "__main__":
    main()
