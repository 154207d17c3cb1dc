"""The process of one worker that Ray placed: it takes orders through Ray, and all else over Remuda's own sockets."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import msgspec
from msgspec import Struct

from remuda.storage.held_folder import HeldFolder
from remuda.wire.connection_file import ConnectionFileError, read
from remuda.wire.keys.own import KEY_FILE
from remuda.wire.keys.pair import PublicKey, new_pair
from remuda.wire.keys.secret_file import write_secret
from remuda.worker.link import WorkerIdentity
from remuda.worker.process import bound_threads

PREFIX = "remuda-actor-"
"""Prefix of the temporary folder with a process's secret key. A killed process leaves it behind; the next process of
any worker on the host removes it."""
_MODE = 0o600


class Introduction(Struct, frozen=True):
    """Key and identity of an actor's new process."""

    public_key: PublicKey
    """From a pair of this process; the secret key never leaves it."""
    host: str
    pid: int
    version: str
    """Of Remuda."""


class Order(Struct, frozen=True):
    """The worker that an actor's process is to be."""

    uuid: str
    incarnation: int
    former_exit: str
    """End of the former incarnation, for people."""
    connection_path: str
    """The connection file. Hosts without access to it use the copy."""
    connection: str
    """Content of the connection file: an address and the coordinator's public key."""
    runs_dir: str
    """The runs folder; a worker on a host without it works by streams."""
    coordinator_timeout_s: float
    profile: str | None


class UsedError(Exception):
    """The process has been a worker already, and must be replaced."""


class RayWorker:
    """Made an actor by RayEngine. Its methods run in the main thread of its process, one after another."""

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
        """Be the worker of this Order (as JSON) until its end; returns its exit code. The process must be replaced
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
        """Return the file itself if this host sees it, since a restarted coordinator replaces it; otherwise a copy,
        with the key of this process beside it."""
        seen, copy = Path(told.connection_path), folder / "connection.json"
        copy.touch(mode=_MODE)
        copy.write_text(told.connection, encoding="utf-8")
        write_secret(folder / "key", self._pair)
        os.environ[KEY_FILE] = str(folder / "key")  # a path; and what /proc shows of this process does not change
        try:
            return seen if read(seen).server_key == read(copy).server_key else copy
        except ConnectionFileError:
            return copy
