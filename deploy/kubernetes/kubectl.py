"""Calls `kubectl` with deadlines, and reads its answers about a launch."""

from __future__ import annotations

import contextlib
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from remuda.deploy.kubernetes.manifests import LAUNCH_LABEL, ROLE_LABEL
from remuda.wire.child_end import end_within

DEADLINE_S = 30.0
FORWARD_S = 30.0
"""Seconds for `kubectl port-forward` to begin."""
END_S = 5.0
"""Seconds for its end."""
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_Answer = TypeVar("_Answer", bound=Struct)


class KubectlError(Exception):
    """kubectl has failed, or its answer is not understood; the text quotes it."""


class _Metadata(Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}


class _Condition(Struct, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""

    @property
    def holds(self) -> bool:
        return self.status == "True"


class _Status(Struct, frozen=True):
    phase: str = ""
    conditions: list[_Condition] = []


class _Item(Struct, frozen=True):
    kind: str
    metadata: _Metadata
    status: _Status = field(default_factory=_Status)


class _Items(Struct, frozen=True):
    items: Annotated[list[_Item], Meta(max_length=200_000)]


@dataclass(frozen=True)
class ObjectState:
    """A job or a pod at a moment."""

    kind: str
    name: str
    role: str
    phase: str
    """Of a pod: Pending, Running, Succeeded, Failed."""
    ready: bool
    """True for a pod that answers its probes."""
    complete: bool
    failed: str | None
    """Reason of a job's final failure; None without one."""
    waits: str
    """Reason why a pod is not placed yet; empty otherwise."""


class Kubectl:
    """Access to the cluster of the user's current context, for one namespace."""

    def __init__(self, namespace: str) -> None:
        self._base = ["kubectl", f"--namespace={namespace}"]

    def apply(self, manifests: str) -> None:
        """Make these objects. They go through standard input: every user can see arguments. Raises KubectlError."""
        self._said(["apply", "--filename=-"], given=manifests)

    def objects(self, launch: str) -> list[ObjectState]:
        """The jobs and pods of a launch. Raises KubectlError."""
        said = self._said(["get", "jobs,pods", f"--selector={LAUNCH_LABEL}={launch}", "--output=json"])
        return [_state(item) for item in _decoded(said, _Items).items]

    def read(self, pod: str, path: str) -> bytes:
        """A file in a running pod. Raises KubectlError."""
        return self._said(["exec", pod, "--", "cat", path])

    def tail(self, launch: str, role: str, lines: int) -> str:
        """Return the last printed lines of a role's pods."""
        selector = f"--selector={LAUNCH_LABEL}={launch},{ROLE_LABEL}={role}"
        with contextlib.suppress(KubectlError):
            return self._said(["logs", selector, f"--tail={lines}", "--prefix"]).decode(errors="replace")
        return ""

    def delete(self, launch: str, *, wait: bool) -> None:
        """Remove all objects of a launch; its pods end in order. Raises KubectlError."""
        what = ["delete", "jobs,services,secrets", f"--selector={LAUNCH_LABEL}={launch}", "--ignore-not-found"]
        self._said([*what, f"--wait={str(wait).lower()}", "--cascade=foreground"], deadline_s=90.0)

    def forward(self, pod: str, port: int) -> tuple[subprocess.Popen[bytes], int]:
        """Forward a free port of this machine to a pod's port, until the process is ended; returns both. Raises
        KubectlError."""
        process = subprocess.Popen(
            [*self._base, "port-forward", "--address=127.0.0.1", f"pod/{pod}", f":{port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches `remuda launch` alone, which then stops the run in order
        )
        said = _first_line(process, FORWARD_S)
        found = _FORWARDING.match(said)
        if found is None:
            end_forwarding(process)
            assert process.stdout is not None
            process.stdout.close()
            raise KubectlError(f"kubectl port-forward says: {said.decode(errors='replace').strip() or 'nothing'}")
        # It prints a line for each connection, and would stand still if nobody read them.
        threading.Thread(target=_read_on, args=(process,), name="remuda-forwarding", daemon=True).start()
        return process, int(found[1])

    def _said(self, arguments: Sequence[str], *, given: str | None = None, deadline_s: float = DEADLINE_S) -> bytes:
        command = [*self._base, *arguments]
        sent = None if given is None else given.encode()
        try:
            ended = subprocess.run(command, input=sent, capture_output=True, timeout=deadline_s, check=False)
        except FileNotFoundError:
            raise KubectlError("kubectl is not found: install it, and see that `kubectl get pods` works") from None
        except subprocess.TimeoutExpired:
            raise KubectlError(f"kubectl {arguments[0]} has not answered for {deadline_s:g} s") from None
        except OSError as error:
            raise KubectlError(f"kubectl cannot be run: {error.strerror}") from error
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip() or f"exit code {ended.returncode}"
            raise KubectlError(f"kubectl {arguments[0]} says: {said}")
        return ended.stdout


def end_forwarding(process: subprocess.Popen[bytes]) -> None:
    """End the process from `forward`. May be called again."""
    process.terminate()
    end_within(process, END_S)


def _read_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    with process.stdout as said, contextlib.suppress(OSError, ValueError):
        while said.read(4_096):
            pass


def _state(item: _Item) -> ObjectState:
    conditions = {each.type: each for each in item.status.conditions}
    holding = {name for name, each in conditions.items() if each.holds}
    failed, scheduled = conditions.get("Failed"), conditions.get("PodScheduled")
    return ObjectState(
        kind=item.kind,
        name=item.metadata.name,
        role=item.metadata.labels.get(ROLE_LABEL, ""),
        phase=item.status.phase,
        ready="Ready" in holding,
        complete="Complete" in holding,
        failed=f"{failed.reason}: {failed.message}" if failed is not None and failed.holds else None,
        waits=scheduled.message if scheduled is not None and not scheduled.holds else "",
    )


def _decoded(said: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(said, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise KubectlError(f"kubectl describes objects in a way that is not understood: {error}") from error


def _first_line(process: subprocess.Popen[bytes], deadline_s: float) -> bytes:
    """Return its first printed line; empty after the deadline."""
    assert process.stdout is not None
    end_s = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(max(end_s - time.monotonic(), 0.0))
    return process.stdout.readline() if ready else b""
