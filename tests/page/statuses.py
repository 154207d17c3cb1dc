"""What a coordinator says of its herd."""

from __future__ import annotations

from typing import Any

from remuda.tests.client.statuses import status as experiment
from remuda.wire.messages import CoordinatorStatus, ExperimentStatus, Status, WorkerStatus

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


__all__ = ["experiment", "status", "uuid", "worker"]
