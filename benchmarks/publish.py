"""How soon 64 collectors have loaded a new policy of 10^6 parameters, and what publishing costs the learner.

Real coordinator, real links, real policy file. The readers are processes that do what a collector does with the news
of a policy, and nothing else: two cores cannot step 64 vectors of environments as well. The learner goes on training.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.stand_ins import DEADLINE_S, coordinator, join, say_ready, take_lease
from remuda.client.client import Client
from remuda.config.schema import ExperimentConfig
from remuda.environments.make import make_single
from remuda.learner.checkpoint import new_algorithm
from remuda.learner.publisher import Publisher
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm
from remuda.policy.files.policy_file import load, publish
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.fence import Fence
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Assign, PolicyAvailable, PolicyPublished, PolicyRef
from remuda.worker.link import Link
from remuda.worker.process import bound_threads

READERS = 64
WARM_UP = 10
"""Publications before those that count: the first few meet readers that still start, and memory touched for the first
time, and take up to 0.3 s."""
PUBLICATIONS = 100
LATE_S = 5.0
TRAINING_S = 5.0
CONFIG = ExperimentConfig.model_validate(
    {
        "name": "publish",
        "env": {"id": "CartPole-v1"},
        "policy": {"hidden": [1000, 995], "dueling": False},
        "collector": {"count": READERS},
        "evaluator": {"interval_env_steps": 1 << 50},
        "checkpoint": {"interval_env_steps": 1 << 50},
        "stop": {"max_env_steps": 1 << 52},
    }
)


def latency_ms() -> float:
    """From the moment that the learner offers a policy until the last reader acts on it: 99th percentile."""
    bound_threads()
    with tempfile.TemporaryDirectory() as name, coordinator(Path(name)) as connection_file:
        with Client(connection_file) as client:
            client.submit(CONFIG, run_dir=Path(name) / "run")
        with _readers(connection_file) as loaded:
            evaluator, learner = join(connection_file, "evaluator"), join(connection_file, "learner")
            say_ready(evaluator, take_lease(evaluator))
            latencies_s = _publish_often(learner, take_lease(learner), loaded)
            evaluator.close("done", 1.0)
            learner.close("done", 1.0)
    return 1_000 * float(np.quantile(latencies_s, 0.99))


def share_of_training() -> float:
    """What publishing as often as the learner may costs of its time: the copy it makes, and the thread's processor
    time, which counts in full although most of it is spent outside the interpreter."""
    bound_threads()
    algorithm = _algorithm()
    batch = _batch()
    published: list[PolicyRef] = []
    with tempfile.TemporaryDirectory() as name:
        publisher = _publisher(Path(name) / "policy", 1, published.append)
        _train_until_it_waits(publisher, algorithm, batch)
        thread_s, begin_s, copying_s = _publishing_cpu_s(), time.perf_counter(), 0.0
        while (elapsed_s := time.perf_counter() - begin_s) < TRAINING_S:
            algorithm.learn(batch)
            if publisher.ready:
                before_s = time.perf_counter()
                publisher.offer(algorithm.published_state(), 1)
                copying_s += time.perf_counter() - before_s
        spent_s = copying_s + _publishing_cpu_s() - thread_s
        publisher.close()
    if len(published) < 2:
        raise RuntimeError("nothing was published")
    return spent_s / elapsed_s


def _publisher(file: Path, epoch: int, published: Callable[[PolicyRef], None]) -> Publisher:
    """As a learner has it."""
    fence = Fence((file.parent,), epoch)
    write = partial(publish, replace=fence.replacing)
    return Publisher(file, epoch, published=published, say=_complain, write=write)


def _train_until_it_waits(publisher: Publisher, algorithm: Algorithm, batch: dict[str, np.ndarray]) -> None:
    """A publisher may publish a little ahead of its share at first; what counts is what follows."""
    end_s, unready = time.monotonic() + DEADLINE_S, 0
    while unready < 20:
        if time.monotonic() > end_s:
            raise TimeoutError(f"publishing never came to its share within {DEADLINE_S:g} s")
        algorithm.learn(batch)
        unready += 1
        if publisher.ready:
            unready = 0
            publisher.offer(algorithm.published_state(), 1)


def _publish_often(link: Link, assign: Assign, loaded: np.ndarray) -> list[float]:
    algorithm, batch = _algorithm(), _batch()
    refs: list[PolicyRef] = []

    def tell(ref: PolicyRef) -> None:
        link.send(PolicyPublished(assign.lease, ref))
        refs.append(ref)

    publisher = _publisher(_policy_file(assign), assign.epoch, tell)
    publisher.offer(algorithm.published_state(), 0)
    publisher.flush(DEADLINE_S)
    say_ready(link, assign)
    _train_until(partial(_all_have_loaded, loaded, 0), algorithm, batch, link, DEADLINE_S)
    latencies_s: list[float] = []
    for version in range(1, WARM_UP + PUBLICATIONS + 1):
        _train_until(lambda: publisher.ready, algorithm, batch, link, LATE_S)
        offered_s = time.monotonic()
        publisher.offer(algorithm.published_state(), version)
        _train_until(partial(_all_have_loaded, loaded, version), algorithm, batch, link, LATE_S)
        latencies_s.append(float(loaded[:, version].max()) - offered_s)
    publisher.close()
    return latencies_s[WARM_UP:]


def _all_have_loaded(loaded: np.ndarray, version: int) -> bool:
    return bool((loaded[:, version] > 0).all())


def _train_until(
    done: Callable[[], bool], algorithm: Algorithm, batch: dict[str, np.ndarray], link: Link, deadline_s: float
) -> None:
    end_s = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError(f"not all of {READERS} readers came within {deadline_s:g} s")
        algorithm.learn(batch)
        link.progress(1)
        link.receive(0.0)


# --- readers


@contextmanager
def _readers(connection_file: Path) -> Generator[np.ndarray]:
    """Fork the readers; yields when each had loaded which version: float64 [readers, versions], 0 for not yet."""
    shape = (READERS, 1 + WARM_UP + PUBLICATIONS)
    loaded = np.frombuffer(mmap.mmap(-1, 8 * math.prod(shape)), np.float64).reshape(shape)
    children: list[int] = []
    try:
        for reader in range(READERS):
            pid = os.fork()
            if pid == 0:
                _be_reader(connection_file, loaded[reader])
            children.append(pid)
        yield loaded
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _policy_file(assign: Assign) -> Path:
    return RunFolder(Path(assign.run_dir)).policy / assign.policy_file


def _be_reader(connection_file: Path, loaded: np.ndarray) -> None:
    try:
        link = join(connection_file, "collector")
        assign = take_lease(link)
        policy = make_policy(CONFIG, *_specs())
        say_ready(link, assign)
        acting: PolicyRef | None = None
        while True:
            message = link.receive(0.2)
            known = message is not None and (not isinstance(message, PolicyAvailable) or message.policy == acting)
            if known or (message is None and acting is not None) or not _policy_file(assign).exists():
                continue
            newest = load(_policy_file(assign), newer_than=acting)
            if newest is not None:
                policy.load_state(newest.state)
                acting = newest.ref
                loaded[acting.version] = time.monotonic()
                link.progress(1)
    finally:
        os._exit(1)


# --- what is learned


def _specs() -> tuple[ObservationSpec, ActionSpec]:
    env = make_single(CONFIG.env, source_dir=None)
    return ObservationSpec.of(env.observation_space), ActionSpec.of(env.action_space)


def _algorithm() -> Algorithm:
    env = make_single(CONFIG.env, source_dir=None)
    return new_algorithm(CONFIG, env.observation_space, env.action_space)


def _batch() -> dict[str, np.ndarray]:
    rng, rows = np.random.default_rng(0), CONFIG.learner.batch_size
    return {
        "obs": rng.standard_normal((rows, 4)).astype(np.float32),
        "next_obs": rng.standard_normal((rows, 4)).astype(np.float32),
        "action": rng.integers(0, 2, rows),
        "reward": np.ones(rows, np.float32),
        "discount": np.full(rows, 0.97, np.float32),
        "weights": np.ones(rows, np.float32),
    }


def _publishing_cpu_s() -> float:
    """Processor time of this process less that of this thread: the publishing thread's, as there is no other."""
    return time.process_time() - time.thread_time()


def _complain(warning: str) -> None:
    print(warning, file=sys.stderr)


def figures(peers: bool) -> list[Figure]:
    """No peer publishes to so many readers; the references are the limits that were set."""
    return [
        *compare(
            "publish_until_loaded_by_64",
            unit="ms, 99th percentile",
            goal="<= 1",
            ours=latency_ms,
            references={"the limit of 100 ms": lambda: 100.0},
        ),
        *compare(
            "publish_share_of_learner",
            unit="share of time",
            goal="<= 1",
            ours=share_of_training,
            references={"the limit of 2 %": lambda: 0.02},
        ),
    ]


if __name__ == "__main__":
    main(figures)
