"""Watches a herd while it trains, and hits whom a schedule names: by a kill -9, or by the cut of a link."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from remuda.benchmarks.herd import until
from remuda.benchmarks.training_kept import IsBack, Loss, Plan, Watched
from remuda.wire.messages import OVER, Status, WorkerStatus

WARM_UP_ENV_STEPS = 10_000
WARM_UP_DEADLINE_S = 300.0
LOOK_S = 0.05


class WatchedHerd(Protocol):
    """A herd with one run."""

    def serve(self) -> None:
        """Called many times a second: what starts again what nobody else does, such as a service manager."""
        ...

    def status(self) -> Status | None:
        """None where no coordinator answers."""
        ...

    def hit(self, role: str, choice: float, status: Status) -> IsBack | None:
        """Take something away; returns how to see that it goes on. None where there is nobody to hit: at the next
        look."""
        ...


def watch(herd: WatchedHerd, plan: Plan) -> Watched:
    """Let a herd that has begun to train warm up, and then carry out a plan. Raises RuntimeError where its run ends."""
    until(lambda: _is_warm(herd), "a warm herd", deadline_s=WARM_UP_DEADLINE_S, pause_s=0.1)
    seen, to_hit = Watched(plan), list(plan.kills)
    begin_s = time.monotonic()
    while (now_s := time.monotonic() - begin_s) < plan.end_s:
        herd.serve()
        status = herd.status()
        if status is not None and status.experiments:
            _look(seen, now_s, status)
            if to_hit and now_s >= plan.peace_s + to_hit[0].at_s:
                kill = to_hit[0]
                is_back = herd.hit(kill.role, kill.choice, status)
                if is_back is not None:
                    seen.losses.append(Loss(kill, now_s, is_back))
                    to_hit.pop(0)
        time.sleep(LOOK_S)
    seen.share_out()
    return seen


def _is_warm(herd: WatchedHerd) -> bool:
    herd.serve()
    status = herd.status()
    return status is not None and bool(status.experiments) and status.experiments[0].env_step >= WARM_UP_ENV_STEPS


def _look(seen: Watched, now_s: float, status: Status) -> None:
    run = status.experiments[0]
    if run.state in OVER:
        raise RuntimeError(f"the run is {run.state}: {run.reason}")
    seen.see(now_s, run.env_step, run.train_iter)
    seen.collector_pids |= {worker.pid for worker in status.workers if worker.role == "collector"}
    for loss in seen.losses:
        if loss.back_s is None and loss.is_back(status):
            loss.back_s = now_s - loss.at_s


# --- whether something goes on ---


def busy(status: Status, role: str) -> list[WorkerStatus]:
    """The workers of a role that work for a run."""
    return [worker for worker in status.workers if worker.role == role and worker.state == "busy"]


def counts_again(status: Status) -> IsBack:
    """How to see that a coordinator counts more than now."""
    env_step = status.experiments[0].env_step
    return lambda status: status.experiments[0].env_step > env_step


@dataclass
class WorksAgain:
    """An IsBack: the next incarnation works for the run; a collector has written a chunk, a learner has updated."""

    worker: WorkerStatus
    """That was killed."""
    data: Path
    """The data/ of its run."""
    least_train_iter: int
    """Since then: a learner goes on from its checkpoint."""

    def __call__(self, status: Status) -> bool:
        train_iter = status.experiments[0].train_iter
        self.least_train_iter = min(self.least_train_iter, train_iter)
        for worker in busy(status, self.worker.role):
            if worker.uuid == self.worker.uuid and worker.incarnation > self.worker.incarnation:
                if worker.role == "collector":
                    return newest_chunk(self.data, worker) >= 0
                return worker.role == "evaluator" or train_iter > self.least_train_iter
        return False


@dataclass
class DeliversAgain:
    """An IsBack: of a worker that lives, and was cut off. A collector has written another chunk."""

    worker: WorkerStatus
    data: Path
    chunk: int = -1
    """The newest of its chunks when this was asked first."""

    def __call__(self, status: Status) -> bool:
        for worker in busy(status, self.worker.role):
            if worker.uuid == self.worker.uuid:
                newest = newest_chunk(self.data, worker)
                self.chunk = self.chunk if self.chunk >= 0 else newest
                return worker.role != "collector" or newest > self.chunk
        return False


def newest_chunk(data: Path, worker: WorkerStatus) -> int:
    """The number of the newest chunk of this incarnation in data/; -1 where there is none."""
    names = (path.stem for path in data.glob(f"{worker.uuid}_{worker.incarnation:06d}_*.safetensors"))
    return max((int(name.rpartition("_")[2]) for name in names), default=-1)


def chosen(workers: Sequence[WorkerStatus], choice: float) -> WorkerStatus | None:
    """One of them by its share of the list; None of none."""
    return workers[int(choice * len(workers))] if workers else None
