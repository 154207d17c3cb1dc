"""Run folders as runs leave them behind, made by the parts that make them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from remuda.client.sweeps.lineage import Interval as Compared
from remuda.client.sweeps.lineage import Lineage, Origin
from remuda.client.sweeps.record import RunRecord, SweepFile
from remuda.config.dump import write_configs
from remuda.config.load import load_settings
from remuda.logbook.lines import TextLog
from remuda.logbook.series import Evaluation, Event, EventKind, Interval, Logged, Moment, Usage
from remuda.logbook.series_file import SeriesFile
from remuda.logbook.tensorboard import EventWriter
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import prepare
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import CheckpointRecord, CoordinatorStatus, ExperimentStatus, Film, Status, WorkerStatus

WORKER = "08bc72a5-0000-4000-8000-000000000001"
OTHER_WORKER = "18bc72a5-0000-4000-8000-000000000002"
EXPERIMENT = "f20e48af-0000-4000-8000-000000000009"
GIF = b"GIF89a" + bytes(range(40))
NOW_S = 1.7e9
LEARNER = Usage("learner", 1, 1.0, 200.0, 0.75, 0.0, 0.25, 0.0, 0.0, 0.0)
COLLECTOR = Usage("collector", 2, 0.5, 100.0, 0.25, 0.25, 0.0, 0.0, 0.5, 0.0)


def settings(name: str = "cartpole", seed: int = 0, **sections: Any) -> dict[str, object]:
    return {"name": name, "seed": seed, "env": {"id": "CartPole-v1"}, "policy": {"type": "dqn"}, **sections}


def run_folder(runs: Path, run: str, **changes: Any) -> RunFolder:
    """A run in parallel mode with its config and an empty commander's log."""
    runs.mkdir(exist_ok=True)
    folder = prepare(runs / run, "error", mode="parallel", now=datetime(2026, 1, 1, tzinfo=UTC))
    given = settings(**({"name": run.rpartition("/")[2]} | changes))
    loaded = load_settings(given, folder=runs)
    write_configs(folder.root, loaded.config, loaded.provenance)
    folder.commander_log.touch()
    (folder.policy / f"policy_{EXPERIMENT}_000001").write_bytes(b"")
    return folder


def interval(wall_s: float, **changes: Any) -> Interval:
    values: dict[str, Any] = {
        "time_s": NOW_S + wall_s,
        "wall_s": wall_s,
        "past_s": 60.0,
        "env_step": int(8 * wall_s),
        "train_iter": int(wall_s / 2),
        "episode": 3,
        "policy_version": 4,
        "env_steps_per_s": 8.0,
        "train_iters_per_s": 0.5,
        "episodes": 4,
        "return_mean": 5.0,
        "buffer_rows": 470,
        "policy_lag": 2,
        "samples_per_insert": 7.5,
        "events_left_out": 0,
        "roles": [LEARNER, COLLECTOR],
        "workers": [],
    }
    return Interval(**(values | changes))


def evaluation(wall_s: float, return_mean: float | None, **changes: Any) -> Evaluation:
    train_iter = int(wall_s / 2)
    values: dict[str, Any] = {
        "time_s": NOW_S + wall_s,
        "wall_s": wall_s,
        "env_step": int(8 * wall_s),
        "train_iter": train_iter,
        "checkpoint": f"iteration_{train_iter}.pth.tar",
        "episodes": 5,
        "return_mean": return_mean,
        "return_std": 1.0,
        "duration_s": 1.0,
        "best": True,
    }
    return Evaluation(**(values | changes))


def logged(wall_s: float, **numbers: float) -> Logged:
    at = {"env_step": int(8 * wall_s), "train_iter": int(wall_s / 2)}
    return Logged(time_s=NOW_S + wall_s, wall_s=wall_s, **at, callback="Mine", numbers=numbers)


def event(wall_s: float, kind: EventKind, role: str | None = None, worker: str | None = None, text: str = "") -> Event:
    return Event(
        time_s=NOW_S + wall_s,
        wall_s=wall_s,
        env_step=int(8 * wall_s),
        train_iter=int(wall_s / 2),
        event=kind,
        role=role,
        worker=worker,
        text=text or kind,
    )


def write_series(folder: RunFolder, moments: Sequence[Moment]) -> None:
    """Append to the time series."""
    file = SeriesFile(folder.series, now_s=lambda: NOW_S)
    for moment in moments:
        file.append(moment)
    file.close()


def write_progress(
    folder: RunFolder, rows: Sequence[Sequence[object]], header: str = "TotalEnvInteracts LossQ Time"
) -> None:
    """Replace progress.txt."""
    lines = ["\t".join(header.split()), *("\t".join(map(str, row)) for row in rows)]
    folder.progress.write_text("\n".join(lines) + "\n")


def write_checkpoints(folder: RunFolder, returns: Sequence[float | None]) -> None:
    """Checkpoints at iterations 0, 10, 20 …, with these returns."""
    index = CheckpointIndex(folder.ckpt)
    best = max((value for value in returns if value is not None), default=None)
    for number, value in enumerate(returns):
        train_iter = 10 * number
        file = f"iteration_{train_iter}.pth.tar"
        (folder.ckpt / file).write_bytes(b"x" * 100)
        created = "2026-11-22T21:03:49+00:00"
        index.add(CheckpointRecord(train_iter, 80 * number, 1.5 * number, None, file, "0" * 64, created))
        if value is not None:
            index.set_reward(train_iter, value, best=value == best)


def say(path: Path, *texts: str) -> None:
    """Append records to a text log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = TextLog(path)
    for text in texts:
        log.info(text)
    log.close()


def film(folder: RunFolder, train_iter: int, gif: bytes = GIF) -> None:
    """Add a film to the commander's event file."""
    writer = EventWriter(folder.commander_tb, now_s=lambda: NOW_S)
    writer.film(Film(gif, 10, 10), train_iter=train_iter)
    writer.close()


def finished_run(runs: Path, run: str, *, returns: Sequence[float] = (9.0, 100.0, 50.0), **changes: Any) -> RunFolder:
    """A run that is over, with everything in its folder."""
    folder = run_folder(runs, run, **changes)
    write_checkpoints(folder, returns)
    moments: list[Moment] = [
        event(0.0, "worker_joined", "learner", OTHER_WORKER),
        event(0.0, "worker_joined", "collector", WORKER),
    ]
    for number, value in enumerate(returns):
        moments += [evaluation(60.0 * number, value), interval(60.0 * (number + 1))]
    moments += [
        event(60.0 * len(returns), "worker_died", "collector", WORKER, "collector 08bc72a5 ended with signal 9"),
        event(60.0 * len(returns), "run_ends", text="the run ends: max_env_steps"),
    ]
    write_series(folder, moments)
    write_progress(folder, [(100 * n, 1.0 / (n + 1), 10.0 * n) for n in range(20)])
    say(
        folder.commander_log,
        "begins",
        "the run is over after 180.0 s: max_env_steps; env_step 8007 has reached max_env_steps 8000",
    )
    say(folder.worker_log("collector", WORKER, 1), "collects", "<script>alert(1)</script>", "the last words")
    lines = (f"[2026-01-01 00:00:00][x.py:1][INFO] line {number}\n" for number in range(2_000))
    folder.learner_log.write_text("".join(lines))
    return folder


def touch(path: Path, time_s: float) -> None:
    """Say that a file was changed at this time."""
    os.utime(path, (time_s, time_s))


COORDINATOR = CoordinatorStatus("01234567-89ab-4def-8123-456789abcdef", "tcp://127.0.0.1:4", 7, 6.0, 10)


def uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000001"


def worker(number: int, **changes: Any) -> WorkerStatus:
    values: dict[str, Any] = {
        "uuid": uuid(number),
        "incarnation": 1,
        "role": "collector",
        "host": "vm",
        "pid": 100 + number,
        "state": "idle",
        "experiment": None,
        "beat_age_s": 0.5,
        "activity": "idle",
        "rss_bytes": 100 << 20,
        "cpu_cores": 0.25,
        "work_share": None,
        "cpus": 2,
        "memory_bytes": 8 << 30,
    }
    return WorkerStatus(**(values | changes))


def status(experiments: list[ExperimentStatus] | None = None, workers: list[WorkerStatus] | None = None) -> Status:
    return Status(COORDINATOR, workers or [], experiments or [])


def population(name: str) -> SweepFile:
    """Two members: the second fails once, then goes on from the first with half its learning rate; both are under way
    in the third interval."""
    whole, half = {"lr": 0.1, "clip": 0.2}, {"lr": 0.05, "clip": 0.2}
    ends = [CheckpointRecord(n, n, 1.0, float(n), f"iteration_{n}.pth.tar", "0" * 64, "") for n in (105, 203, 207)]
    first = Origin(member=0, generation=0, run="m00_g0", settings=whole)
    second = Origin(member=1, generation=0, run="m01_g0", settings=whole)
    copy = Origin(member=1, generation=1, run="m01_g1", settings=half, parent="m00_g0", checkpoint=ends[0])
    firsts = [replace(first, parent="m00_g0", checkpoint=one) for one in ends[:2]]
    intervals = (
        Compared(until_env_step=100, origins=(first, second), ends=(ends[0], None)),
        Compared(until_env_step=200, origins=(firsts[0], copy), ends=(ends[1], ends[2])),
        Compared(until_env_step=300, origins=(firsts[1], replace(copy, parent="m01_g1", checkpoint=ends[2]))),
    )
    runs = [
        RunRecord(name=one.run, variant=one.run[:3], seed=1, settings=one.settings, run_dir=f"v/{one.run}")
        for one in (first, second, copy)
    ]
    return SweepFile(1, name, "serial", tuple(runs), Lineage({}, intervals))
