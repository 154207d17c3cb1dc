"""Experiment trackers: Weights & Biases and MLflow, in threads, to keep a run from waiting."""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Protocol, cast

from pydantic import JsonValue

from remuda.logbook.tensorboard import listed
from remuda.storage.atomic import write_text

_WAITING_ROWS = 1_000
"""Most rows that wait for a service; a service with more is too slow, and receives no further rows."""
PROJECT = "remuda"
_RUN_ID = "run_id"
"""File in the service's folder: a resumed run continues under the same id."""
_LONGEST_PARAMETER = 500
_PARAMETERS_AT_ONCE = 100


class Service(Protocol):
    """A run in an experiment tracker."""

    def log(self, record: Mapping[str, float]) -> None:
        """Receive a row; record["env_step"] is its step."""
        ...

    def finish(self) -> None:
        """The run is over."""
        ...


class SinkError(Exception):
    """The service has failed, is too slow, or does not end."""


class BackgroundSink:
    """Passes rows on to a service. An error of the service is raised once, at the next row or by `finish`."""

    def __init__(self, path: Path, connect: Callable[[], Service], *, takes_callbacks: bool = False) -> None:
        """Start the thread. `path` is the folder of the service; the thread calls `connect`, and all methods of the
        service. `takes_callbacks` also passes on rows with numbers of callbacks alone."""
        self.path, self.takes_callbacks = path, takes_callbacks
        self._connect = connect
        self._rows: Queue[dict[str, float] | None] = Queue(_WAITING_ROWS)
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"sink {path.name}", daemon=True)
        self._thread.start()

    def row(self, record: Mapping[str, float]) -> None:
        """Pass on a row. Raises SinkError; never waits."""
        self._raise()
        try:
            self._rows.put_nowait(dict(record))
        except Full:
            raise SinkError(f"too slow: {_WAITING_ROWS} rows are waiting") from None

    def close(self) -> None:
        """No more rows come; see `finish`. May be called again."""
        if not self._closed:
            self._closed = True
            threading.Thread(target=self._rows.put, args=(None,), daemon=True).start()

    @property
    def busy(self) -> bool:
        """True while the service works, or until its error has been raised."""
        return self._thread.is_alive() or self._error is not None

    def finish(self, deadline_s: float) -> None:
        """After `close`, wait for the service until `deadline_s` (time.monotonic). Raises SinkError."""
        self._thread.join(max(deadline_s - time.monotonic(), 0.0))
        self._raise()
        if self._thread.is_alive():
            raise SinkError("did not end in time")

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise SinkError(f"{type(error).__name__}: {error}") from error

    def _work(self) -> None:
        try:
            service = self._connect()
            while (row := self._rows.get()) is not None:
                service.log(row)
            service.finish()
        except (Exception, SystemExit) as error:  # foreign code may even exit
            self._error = error
            with suppress(Empty):  # a full queue would block the thread of `close` forever
                while True:
                    self._rows.get_nowait()


def require(module: str, extra: str) -> None:
    """Raise ModuleNotFoundError with the command to install a missing module."""
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"{module} is not installed: pip install 'remuda[{extra}]'")


def wandb_run(folder: Path, name: str, settings: Mapping[str, JsonValue]) -> Service:
    """A run of Weights & Biases: written to `folder`, to be sent with `wandb sync`; with $WANDB_MODE=online sent at
    once. $WANDB_PROJECT and the like work as usual. Raises what wandb raises."""
    wandb: Any = import_module("wandb")  # its annotations are partial
    id = _known_id(folder) or secrets.token_hex(4)
    _remember_id(folder, id)
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=name,
        id=id,
        resume="allow",
        dir=str(folder),
        config=dict(settings),
        mode=os.environ.get("WANDB_MODE", "offline"),
        reinit="create_new",  # a coordinator has many runs
        settings=wandb.Settings(silent=True, console="off"),
    )
    return _Wandb(run)


class _Wandb:
    def __init__(self, run: Any) -> None:
        self._run, self._newest = run, 0

    def log(self, record: Mapping[str, float]) -> None:
        self._newest = max(self._newest, int(record["env_step"]))  # wandb drops rows below an earlier step
        self._run.log(_finite(record), step=self._newest)

    def finish(self) -> None:
        self._run.finish()


def mlflow_run(folder: Path, name: str, settings: Mapping[str, JsonValue]) -> Service:
    """Open a run of MLflow, in a database in `folder` unless $MLFLOW_TRACKING_URI names a server.

    $MLFLOW_EXPERIMENT_NAME has its usual effect. Raises the errors of mlflow.
    """
    mlflow: Any = import_module("mlflow")  # its annotations are partial
    uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    client = mlflow.MlflowClient(tracking_uri=uri)
    id = _known_id(folder)
    if id is None:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = client.get_experiment_by_name(experiment)
        place = client.create_experiment(experiment) if known is None else known.experiment_id
        id = cast(str, client.create_run(place, run_name=name).info.run_id)
        _remember_id(folder, id)
        _log_parameters(client, id, settings)
    else:
        client.update_run(id, status="RUNNING")
    return _Mlflow(client, id)


class _Mlflow:
    def __init__(self, client: Any, id: str) -> None:
        self._client = client
        self._id = id
        self._metric: Any = import_module("mlflow.entities").Metric

    def log(self, record: Mapping[str, float]) -> None:
        now_ms, step = int(time.time() * 1000), int(record["env_step"])
        values = [self._metric(name, value, now_ms, step) for name, value in _finite(record).items()]
        self._client.log_batch(self._id, metrics=values)

    def finish(self) -> None:
        self._client.set_terminated(self._id)


def _log_parameters(client: Any, id: str, settings: Mapping[str, JsonValue]) -> None:
    parameter: Any = import_module("mlflow.entities").Param
    all_ = [parameter(name, str(value)[:_LONGEST_PARAMETER]) for name, value in listed(settings)]
    for first in range(0, len(all_), _PARAMETERS_AT_ONCE):
        client.log_batch(id, params=all_[first : first + _PARAMETERS_AT_ONCE])


def _finite(record: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in record.items() if math.isfinite(value)}


def _known_id(folder: Path) -> str | None:
    path = folder / _RUN_ID
    return path.read_text("utf-8").strip() if path.exists() else None


def _remember_id(folder: Path, id: str) -> None:
    write_text(folder / _RUN_ID, id + "\n", durable=False)
