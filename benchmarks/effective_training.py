"""Effective training time: environment steps of a herd in which somebody is killed every minute, as a share of those of
the same herd in peace.

The processes are real: a coordinator that a service manager starts again one second after its end, and `remuda worker`
for two collectors, an evaluator and a learner, whose nannies start them again. Whom a kill -9 hits is drawn from a
seed: each role once before any is hit again. Steps are those that the ledger has counted, as `remuda status` shows.

The environment's step takes a millisecond, which sets the pace and leaves most of two cores free. Were the processor
what limits the pace, a machine that is busy with something else would decide the ratio, and a dead process would leave
its share of the processor to the others, who would hide what it costs. The learner is held to `samples_per_insert`, so
steps are not taken either while it is gone for long.

`REMUDA_EFFECTIVE_MINUTES` (20; the herd in peace takes as long again) and `REMUDA_EFFECTIVE_INTERVAL_S` (60) change it:
2 and 8 are enough to see what a kill costs.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.herd import until
from remuda.benchmarks.kill_schedule import VICTIMS, Kill, kill_schedule
from remuda.benchmarks.served_herd import ServedHerd, served_herd
from remuda.config.load import load_config
from remuda.wire.messages import ExperimentStatus, Status, WorkerStatus

CONFIG = Path(__file__).parent / "configs" / "effective_training.yaml"
NAME = "effective_training"
MINUTES = 20.0
INTERVAL_S = 60.0
SEED = 20
LEAST_RATIO = 0.95
MOST_LOST_S = (1 - LEAST_RATIO) * INTERVAL_S
"""By one kill: what `LEAST_RATIO` allows at one a minute, and what kills in a hurry are measured by."""
WARM_UP_ENV_STEPS = 10_000
WARM_UP_DEADLINE_S = 300.0
LOOK_S = 0.05


@dataclass
class Loss:
    """One kill and what became of it."""

    kill: Kill
    at_s: float
    """When it happened; later than planned where the role was not there."""
    worker: str
    """Empty for the coordinator."""
    incarnation: int
    env_step: int
    """At that moment."""
    least_train_iter: int
    """Since then: a learner goes on from its checkpoint."""
    back_s: float | None = None
    """How long until it went on."""
    lost_s: float = 0.0
    """Training time that the herd lost until the next kill."""


@dataclass
class Watched:
    """What was seen of one herd."""

    duration_s: float
    at_s: list[float] = field(default_factory=list[float])
    env_steps: list[int] = field(default_factory=list[int])
    train_iters: list[int] = field(default_factory=list[int])
    losses: list[Loss] = field(default_factory=list[Loss])

    def see(self, at_s: float, run: ExperimentStatus) -> None:
        self.at_s.append(at_s)
        self.env_steps.append(run.env_step)
        self.train_iters.append(run.train_iter)

    @property
    def steps_per_s(self) -> float:
        """Over the whole time: while no coordinator is there nothing is counted."""
        return (self.env_steps[-1] - self.env_steps[0]) / self.duration_s

    @property
    def updates_per_s(self) -> float:
        """Those a learner loses by going back to its checkpoint are not counted."""
        return (self.train_iters[-1] - self.train_iters[0]) / self.duration_s

    def env_step_at(self, at_s: float) -> int:
        """The last that was seen until then."""
        return self.env_steps[max(0, bisect_right(self.at_s, at_s) - 1)]

    def share_out(self, peace_steps_per_s: float) -> None:
        """Say of each kill how much time it cost, by the pace of a herd in peace."""
        ends_s = [*(loss.at_s for loss in self.losses[1:]), self.duration_s]
        for loss, end_s in zip(self.losses, ends_s, strict=True):
            gained = self.env_step_at(end_s) - self.env_step_at(loss.at_s)
            loss.lost_s = end_s - loss.at_s - gained / peace_steps_per_s


def watch(duration_s: float, kills: Sequence[Kill]) -> Watched:
    """Let a herd train for so long, once it has warmed up, and kill whom the schedule names."""
    with tempfile.TemporaryDirectory() as folder, served_herd(Path(folder)) as herd:
        with herd.client() as client:
            run_dir = Path(client.submit(load_config(CONFIG).config).run_dir)
        until(lambda: _env_step(herd) >= WARM_UP_ENV_STEPS, "a warm herd", deadline_s=WARM_UP_DEADLINE_S, pause_s=0.1)
        return _Watch(herd, run_dir, duration_s, kills).run()


class _Watch:
    """Looks at a herd twenty times a second: serves it, kills, and notes who is back."""

    def __init__(self, herd: ServedHerd, run_dir: Path, duration_s: float, kills: Sequence[Kill]) -> None:
        self._herd = herd
        self._data = run_dir / "data"
        self._to_kill = list(kills)
        self._seen = Watched(duration_s)

    def run(self) -> Watched:
        begin_s = time.monotonic()
        while (now_s := time.monotonic() - begin_s) < self._seen.duration_s:
            self._herd.serve()
            status = self._herd.status()
            if status is not None and status.experiments:
                self._look(now_s, status)
                if self._to_kill and now_s >= self._to_kill[0].at_s:
                    self._kill(now_s, status)
            time.sleep(LOOK_S)
        return self._seen

    def _look(self, now_s: float, status: Status) -> None:
        run = status.experiments[0]
        if run.state not in ("starting", "running"):
            raise RuntimeError(f"the run is {run.state}: {run.reason}")
        self._seen.see(now_s, run)
        for loss in self._seen.losses:
            if loss.back_s is None and self._is_back(loss, status):
                loss.back_s = now_s - loss.at_s
            loss.least_train_iter = min(loss.least_train_iter, run.train_iter)

    def _kill(self, now_s: float, status: Status) -> None:
        kill, run = self._to_kill[0], status.experiments[0]
        there = [worker for worker in status.workers if worker.role == kill.role and worker.state == "busy"]
        if kill.role == "coordinator":
            self._herd.kill_coordinator()
            self._seen.losses.append(Loss(kill, now_s, "", 0, run.env_step, run.train_iter))
        elif there:
            victim = there[int(kill.choice * len(there))]
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
            loss = Loss(kill, now_s, victim.uuid, victim.incarnation, run.env_step, run.train_iter)
            self._seen.losses.append(loss)
        else:
            return  # not back from its last death: at the next look
        self._to_kill.pop(0)

    def _is_back(self, loss: Loss, status: Status) -> bool:
        """The coordinator counts again, the collector has written a chunk, the learner has updated, the evaluator is at
        the run's service."""
        run = status.experiments[0]
        if loss.kill.role == "coordinator":
            return run.env_step > loss.env_step
        worker = next((each for each in status.workers if each.uuid == loss.worker), None)
        if worker is None or worker.incarnation == loss.incarnation or worker.state != "busy":
            return False
        if loss.kill.role == "collector":
            return self._has_written(worker)
        return loss.kill.role == "evaluator" or run.train_iter > loss.least_train_iter

    def _has_written(self, worker: WorkerStatus) -> bool:
        return any(self._data.glob(f"{worker.uuid}_{worker.incarnation:06d}_*.safetensors"))


def _env_step(herd: ServedHerd) -> int:
    status = herd.status()
    return 0 if status is None or not status.experiments else status.experiments[0].env_step


def _print_tables(seen: Watched) -> None:
    print(" killed at  role          goes on after", file=sys.stderr)
    for loss in seen.losses:
        back = "not seen" if loss.back_s is None else f"{loss.back_s:.1f} s"
        print(f"{loss.at_s:8.1f} s  {loss.kill.role:12}  {back:>13}", file=sys.stderr)
    print("role          kills  goes on after (median)  training time lost by one (mean)", file=sys.stderr)
    for role in VICTIMS:
        losses = [loss for loss in seen.losses if loss.kill.role == role]
        backs_s = [loss.back_s for loss in losses if loss.back_s is not None]
        if losses and backs_s:
            back_s, lost_s = statistics.median(backs_s), statistics.mean(loss.lost_s for loss in losses)
            print(f"{role:12}  {len(losses):5}  {back_s:20.1f} s  {lost_s:30.1f} s", file=sys.stderr)


def figures(peers: bool) -> list[Figure]:
    """A herd in peace, then one that is killed; none of the systems compared with publishes such a figure."""
    if peers:
        return []
    duration_s = 60 * float(os.environ.get("REMUDA_EFFECTIVE_MINUTES", MINUTES))
    interval_s = float(os.environ.get("REMUDA_EFFECTIVE_INTERVAL_S", INTERVAL_S))
    peace = watch(duration_s, [])
    killed = watch(duration_s, kill_schedule(SEED, duration_s, interval_s))
    killed.share_out(peace.steps_per_s)
    _print_tables(killed)
    lost_s = duration_s * (1 - killed.steps_per_s / peace.steps_per_s) / max(1, len(killed.losses))
    how = f"{duration_s / 60:g} min, a kill every {interval_s:g} s"
    undisturbed, n = "undisturbed", 1
    return [
        *compare(
            f"effective_training: env steps, {how}",
            unit="1/s",
            goal=f">= {LEAST_RATIO}",
            ours=lambda: killed.steps_per_s,
            references={undisturbed: lambda: peace.steps_per_s},
            n=n,
        ),
        *compare(
            f"effective_training: updates, {how}",
            unit="1/s",
            goal=f">= {LEAST_RATIO}",
            ours=lambda: killed.updates_per_s,
            references={undisturbed: lambda: peace.updates_per_s},
            n=n,
        ),
        *compare(
            f"effective_training: lost by one kill, {how}",
            unit="s",
            goal="<= 1",
            ours=lambda: lost_s,
            references={f"{1 - LEAST_RATIO:.2f} of a minute": lambda: MOST_LOST_S},
            n=n,
        ),
    ]


if __name__ == "__main__":
    main(figures)
