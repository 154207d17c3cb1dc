"""The calls of Ray that are used, and nothing else: to join or start a cluster, and to place, ask and end actors.

Ray is imported here alone, when a cluster is joined.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from remuda.config.launching import RayConfig, RayResources
from remuda.storage.held_folder import HeldFolder
from remuda.wire.connection_file import ConnectionFileError, read
from remuda.wire.keys.folder import KEY_FILE
from remuda.wire.keys.pair import PublicKey, new_pair
from remuda.wire.keys.secret_file import write_secret
from remuda.worker.link import WorkerIdentity
from remuda.worker.process import bound_threads

PREFIX = "remuda-actor-"
"""Prefix of the temporary folder with a process's secret key. The next process of any worker on the host removes the
folder of a killed process."""
_MODE = 0o600


class Introduction(Struct, frozen=True):
    """Key and identity of an actor's new process."""

    public_key: PublicKey
    """Public key of a pair made in this process; the secret key stays here."""
    host: str
    pid: int
    version: str
    """Of Remuda."""


class Order(Struct, frozen=True):
    """Order to an actor's process to be a worker."""

    uuid: str
    incarnation: int
    former_exit: str
    """End of the former incarnation, for people."""
    connection_path: str
    """Connection file; hosts without access use the copy."""
    connection: str
    """Content of the connection file: an address and the coordinator's public key."""
    runs_dir: str
    """Runs folder; a worker on a host without the folder works by streams."""
    coordinator_timeout_s: float
    profile: str | None


class UsedError(Exception):
    """The process has been a worker already, and must be replaced."""


class RayWorker:
    """Worker process, made an actor by RayEngine. Methods run in the main thread, one after another."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._pair = new_pair(f"ray-{os.getpid()}")
        self._used = False

    def introduce(self) -> bytes:
        """Return an Introduction, as JSON. Raises UsedError after work whose exit code Ray lost."""
        if self._used:
            raise UsedError("this process has been a worker already")
        return msgspec.json.encode(
            Introduction(self._pair.public, platform.node(), os.getpid(), version=version("remuda"))
        )

    def work(self, order: bytes) -> int:
        """Be the worker of this Order (as JSON) until the end; return the exit code. The process must be replaced
        afterwards."""
        self._used = True
        told = msgspec.json.decode(order, type=Order)
        bound_threads()
        from remuda.deploy.roles import run_worker  # imports torch

        folder = HeldFolder(PREFIX, told.uuid)
        try:
            return run_worker(
                self._role,
                WorkerIdentity(told.uuid, told.incarnation),
                self._connection_file(told, folder.path),
                runs_dirs=[Path(told.runs_dir)],
                lifeline=None,
                coordinator_timeout_s=told.coordinator_timeout_s,
                former_exit=told.former_exit,
                profile=None if told.profile is None else Path(told.profile),
            )
        finally:
            folder.remove()

    def _connection_file(self, told: Order, folder: Path) -> Path:
        """Return the file itself if this host sees the file, since a restarted coordinator replaces it; otherwise a
        copy, beside the key of this process."""
        seen, copy = Path(told.connection_path), folder / "connection.json"
        copy.touch(mode=_MODE)
        copy.write_text(told.connection, encoding="utf-8")
        write_secret(folder / "key", self._pair)
        os.environ[KEY_FILE] = str(folder / "key")  # a path; and what /proc shows of this process does not change
        try:
            return seen if read(seen).server_key == read(copy).server_key else copy
        except ConnectionFileError:
            return copy


ADDRESS = "RAY_ADDRESS"
"""Ray's own environment variable with the address of a cluster."""
OBJECT_STORE_BYTES = 100 << 20
"""Object store of a Ray started here. Experience uses other ways; Ray requires at least 75 MiB."""
REACH_S = 10.0
"""Seconds for a cluster's address to accept a connection."""
_LOCAL_IP = "127.0.0.1"
_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody unasked
    "RAY_timeout_ms_task_wait_for_death_info": "0",  # why an actor is gone: by default its loss is told 1 to 2 s later
}
"""Settings for this process; values from the user's environment stay. A cluster keeps its own."""

Actor: TypeAlias = Any
Answer: TypeAlias = Any
"""A Ray object reference. Ray's annotations know neither."""


class LostError(Exception):
    """The actor's process is gone or cannot be reached; Ray starts it again."""


class FailedError(Exception):
    """The actor's process raised this error and must be replaced."""


class BrokenError(Exception):
    """The actor's process cannot begin, or Ray gave up, for the reason in the text."""


class RayEngine:
    """A Ray cluster joined by this process."""

    def __init__(self, settings: RayConfig, counts: Mapping[str, int]) -> None:
        """Join the cluster of the settings or of RAY_ADDRESS, or start a cluster here with room for `counts` workers by
        role. Signal handlers stay as they are. Raises BrokenError."""
        for name, value in _RAY_SETTINGS.items():
            os.environ.setdefault(name, value)  # before it is imported
        self._ray: Any = import_module("ray")
        self._exceptions: Any = import_module("ray.exceptions")
        self._settings = settings
        address = settings.address or os.environ.get(ADDRESS) or "local"
        former = signal.getsignal(signal.SIGTERM)
        try:
            _reach(address)
            self._ray.init(
                address=address,
                log_to_driver=False,
                logging_level="error",
                **(_local(settings, counts) if address == "local" else {}),
            )
        except Exception as error:  # Ray raises many kinds
            raise BrokenError(f"Ray at {address}: {type(error).__name__}: {error}") from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, former)
        self._kind: Any = self._ray.remote(RayWorker)

    @property
    def node_ip(self) -> str:
        """Address of this node within the cluster."""
        return str(self._ray.util.get_node_ip_address())

    @property
    def nodes(self) -> int:
        """Number of live nodes."""
        return sum(bool(node["Alive"]) for node in self._ray.nodes())

    def place(self, role: str, name: str) -> Actor:
        """Have an actor placed, which may wait for resources without a limit."""
        needs = self._settings.of(role)
        return self._kind.options(
            name=name,
            num_cpus=needs.num_cpus,
            num_gpus=needs.num_gpus,
            memory=needs.memory_bytes,
            resources=dict(needs.custom),
            scheduling_strategy="SPREAD",  # by default Ray fills one node first, with which all would be lost
            max_restarts=-1,  # Ray starts it again, however often it dies
            max_task_retries=0,  # what is asked of a new process is decided here
        ).remote(role)

    def ask_to_introduce(self, actor: Actor) -> Answer:
        """Ask for the actor's Introduction."""
        return actor.introduce.remote()

    def ask_to_work(self, actor: Actor, order: bytes) -> Answer:
        """Ask the actor to work, for its exit code."""
        return actor.work.remote(order)

    def ready(self, answers: Sequence[Answer], timeout_s: float) -> Sequence[Answer]:
        """Return the finished answers, as soon as any is finished, and at the latest after `timeout_s`."""
        first, _ = self._ray.wait(list(answers), num_returns=1, timeout=timeout_s)
        if not first:
            return []
        there, _ = self._ray.wait(list(answers), num_returns=len(answers), timeout=0)
        return list(there)

    def take(self, answer: Answer) -> bytes | int:
        """Return a finished answer. Raises LostError, FailedError and BrokenError."""
        try:
            found: bytes | int = self._ray.get(answer)
        except self._exceptions.ActorUnavailableError as error:
            raise LostError(_first_line(error)) from error
        except self._exceptions.ActorDiedError as error:
            raised = "raised in its creation task" in str(error)
            raise BrokenError(_last_line(error) if raised else _first_line(error)) from error
        except self._exceptions.RayTaskError as error:
            raise FailedError(_last_line(error)) from error
        except self._exceptions.RayError as error:
            raise LostError(_first_line(error)) from error
        return found

    def renew(self, actor: Actor) -> None:
        """End the actor's process; Ray starts another."""
        self._ray.kill(actor, no_restart=False)

    def end(self, actor: Actor) -> None:
        """End the actor for good."""
        self._ray.kill(actor)

    def shortage(self, role: str) -> str:
        """Return, for people, the needs of a worker of this role and the cluster's free resources."""
        wanted = {name: number for name, number in needed(self._settings.of(role)).items() if number}
        return f"needs {_amounts(wanted)}; free in the cluster: {_amounts(self._free(wanted))}"

    def close(self) -> None:
        """Leave the cluster, or end a cluster started here."""
        self._ray.shutdown()

    def _free(self, wanted: Mapping[str, float]) -> dict[str, float]:
        free: dict[str, float] = self._ray.available_resources()
        return {name: free.get(name, 0.0) for name in wanted}


def _reach(address: str) -> None:
    """Raise OSError at once where nothing listens at host:port: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()


def needed(resources: RayResources) -> dict[str, float]:
    """Return the amounts by Ray's names."""
    own = {"CPU": resources.num_cpus, "GPU": resources.num_gpus, "memory": float(resources.memory_bytes or 0)}
    return {**own, **resources.custom}


def _local(settings: RayConfig, counts: Mapping[str, int]) -> dict[str, object]:
    """Return the arguments for a Ray started here: on the loopback interface, with room for all
    workers on any machine."""
    total: dict[str, float] = {}
    for role, count in counts.items():
        for name, number in needed(settings.of(role)).items():
            total[name] = total.get(name, 0.0) + count * number
    custom = {name: number for name, number in total.items() if name not in ("CPU", "GPU", "memory") and number}
    return {
        "num_cpus": max(os.cpu_count() or 1, int(total.get("CPU", 0.0)) + 1),
        "resources": custom,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
        "_node_ip_address": _LOCAL_IP,
    }


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number:g}" for name, number in amounts.items()) or "nothing"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _last_line(error: Exception) -> str:
    """Return the last line of an actor's error text: the error itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
