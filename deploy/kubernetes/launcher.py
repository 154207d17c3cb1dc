"""A run as jobs of a Kubernetes cluster: coordinator and learner in one pod, and a pod per further worker."""

from __future__ import annotations

import contextlib
import re
import selectors
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar
from uuid import uuid4

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from remuda.deploy.job import CONNECTION_FILE
from remuda.deploy.kubernetes.manifests import KEY_FILES, LAUNCH_LABEL, ROLE_LABEL, KubernetesPlan, as_yaml, object_name
from remuda.deploy.launcher import Launcher, LaunchError, LaunchRequest, WorkerCounts
from remuda.wire.child_end import end_within
from remuda.wire.connection_file import ConnectionFile, HandedKey, write
from remuda.wire.keys.folder import FOLDER, KeysFolder
from remuda.wire.keys.secret_file import read_secret
from remuda.wire.messages import PROTOCOL_VERSION

LOOK_S = 1.0
TAIL_LINES = 30


class KubernetesLauncher(Launcher):
    """Makes the objects, forwards a port of this machine to the coordinator, and removes everything at the end.

    Kubernetes itself replaces failed or evicted pods. The keys are made here and given to Kubernetes as a Secret.
    """

    def __init__(self, request: LaunchRequest) -> None:
        """Makes and writes nothing. Raises LaunchError for an unsupported request."""
        if request.profile is not None:
            raise LaunchError("--profile: what pods write cannot be fetched from their volume; profile a local run")
        self._request = request
        self._settings = request.settings.kubernetes
        self._plan = KubernetesPlan(request, object_name(request.name, uuid4().hex[:8]))
        self._kubectl = Kubectl(self._settings.namespace)
        self._folder: Path | None = None
        self._forwarding: subprocess.Popen[bytes] | None = None
        self._begun = False
        self._next_look_s = 0.0
        self._told = ""

    @property
    def connection_file(self) -> Path:
        """Connection file of this machine, with the address of the forwarded port."""
        assert self._folder is not None, "nothing has been started"
        return self._folder / CONNECTION_FILE

    def planned(self, workers: WorkerCounts) -> str:
        """Return the manifests, without the content of the Secret."""
        return as_yaml(self._plan.manifests(workers))

    def start(self, workers: WorkerCounts, *, given_up: Callable[[], bool]) -> None:
        """Make everything, and wait until the coordinator's pod is ready and can be reached."""
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-"))  # mode 0700
        keys = KeysFolder(self._folder / FOLDER)
        keys.save()
        secrets = {name: (keys.path / name).read_text(encoding="utf-8") for name in KEY_FILES}
        try:
            self._begun = True
            self._kubectl.apply(as_yaml(self._plan.manifests(workers, secrets, self._connection_of_workers(keys))))
        except KubectlError as error:
            raise LaunchError(str(error)) from error
        self._request.say(f"made the jobs {self._plan.name}-…")
        while self._forwarding is None:
            if given_up():
                raise LaunchError("asked to end before the coordinator had started; its jobs are removed")
            self.check()
            time.sleep(LOOK_S if self._forwarding is None else 0.0)

    def check(self) -> None:
        """Ask Kubernetes from time to time how everything stands, and lead the port to the coordinator's pod of the
        moment. Raises LaunchError."""
        if self._forwarding is not None and self._forwarding.poll() is not None:
            self._end_forwarding()
            self._next_look_s = 0.0
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        try:
            self._look()
        except KubectlError as error:  # the run may be fine; Kubernetes is asked again
            self._tell(f"Kubernetes does not answer as it should: {error}")
        pause_s = LOOK_S if self._forwarding is None else self._settings.poll_interval_s
        self._next_look_s = time.monotonic() + pause_s

    def wait_for_coordinator(self, deadline_s: float) -> bool:
        """Wait until the coordinator's job is complete; False when the deadline passes first."""
        end_s = time.monotonic() + deadline_s
        while time.monotonic() < end_s:
            with contextlib.suppress(KubectlError):
                if any(
                    each.kind == "Job" and each.role == "head" and each.condition("Complete")
                    for each in self._objects()
                ):
                    return True
            time.sleep(LOOK_S)
        return False

    def kill(self) -> None:
        """Have everything removed, without waiting."""
        self._end_forwarding()
        with contextlib.suppress(KubectlError):
            self._kubectl.delete(self._plan.name, wait=False)

    def stop(self) -> None:
        """Remove everything and wait for the removal."""
        self._end_forwarding()
        if self._begun:
            self._begun = False
            try:
                self._kubectl.delete(self._plan.name, wait=True)
            except KubectlError as error:
                self._request.say(f"what is left of {self._plan.name} could not be removed: {error}")
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _connection_of_workers(self, keys: KeysFolder) -> str:
        """Return the connection file for workers without the volume. The host name leads to every coordinator of this
        launch."""
        worker = read_secret(keys.path / "worker")
        address = f"tcp://{self._plan.host}:{self._settings.port}"
        connection = ConnectionFile(
            coordinator=str(uuid4()),  # the real one is not known yet, and workers do not ask
            address=address,
            protocol=PROTOCOL_VERSION,
            host=self._plan.host,
            pid=0,
            epoch=0,
            server_key=keys.server.public,
            keys_dir="/",
            own_key=HandedKey(worker.name, worker.secret.hex()),
        )
        return msgspec.json.encode(connection).decode()

    def _objects(self) -> list[ObjectState]:
        return self._kubectl.objects(self._plan.name)

    def _look(self) -> None:
        found = self._objects()
        for job in found:
            if job.kind == "Job" and job.role != "reanalyzer" and (failed := job.condition("Failed")):
                tail = self._kubectl.tail(self._plan.name, job.role, TAIL_LINES)
                why = f"{failed.reason}: {failed.message}"
                raise LaunchError(f"the job {job.name} has failed: {why}\n{tail}".rstrip())
        heads = [each for each in found if each.kind == "Pod" and each.role == "head"]
        for head in heads:
            if waits := head.condition("PodScheduled", holds=False):
                self._tell(f"coordinator's pod {head.name} waits: {waits.message}")
        ready = next((head for head in heads if head.condition("Ready")), None)
        if ready is not None and self._forwarding is None:
            self._forward(ready.name)

    def _forward(self, pod: str) -> None:
        """Forward a port of this machine to the coordinator, and write the connection file for this machine."""
        text = self._kubectl.read(pod, str(self._plan.own_dir / CONNECTION_FILE))
        try:
            there = msgspec.json.decode(text, type=ConnectionFile)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise KubectlError(f"the pod's connection file is damaged: {error}") from error
        self._forwarding, port = self._kubectl.forward(pod, self._settings.port)
        keys_dir = str(self.connection_file.parent / FOLDER)
        write(self.connection_file, replace(there, address=f"tcp://127.0.0.1:{port}", keys_dir=keys_dir))
        self._tell(f"the coordinator in pod {pod} can be reached")

    def _end_forwarding(self) -> None:
        if self._forwarding is not None:
            end_forwarding(self._forwarding)
            self._forwarding = None

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._request.say(text)


DEADLINE_S = 30.0
FORWARD_S = 30.0
"""Seconds for `kubectl port-forward` to begin."""
END_S = 5.0
"""Seconds for ending the port forward."""
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_Answer = TypeVar("_Answer", bound=Struct)


class KubectlError(Exception):
    """kubectl failed, or gave an unknown answer, quoted in the text."""


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
    conditions: list[_Condition] = []


class ObjectState(Struct, frozen=True):
    """A job or a pod at a moment, as printed by kubectl."""

    kind: str
    metadata: _Metadata
    status: _Status = field(default_factory=_Status)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def role(self) -> str:
        """Role of the pods; empty for other objects."""
        return self.metadata.labels.get(ROLE_LABEL, "")

    def condition(self, kind: str, *, holds: bool = True) -> _Condition | None:
        """Return the condition of this kind that holds, or that does not."""
        return next((one for one in self.status.conditions if one.type == kind and one.holds is holds), None)


class _Items(Struct, frozen=True):
    items: Annotated[list[ObjectState], Meta(max_length=200_000)]


class Kubectl:
    """Access to the cluster of the user's current context, for one namespace."""

    def __init__(self, namespace: str) -> None:
        self._base = ["kubectl", f"--namespace={namespace}"]

    def apply(self, manifests: str) -> None:
        """Make these objects. They pass through standard input: arguments are visible to every user. Raises
        KubectlError."""
        self._said(["apply", "--filename=-"], given=manifests)

    def objects(self, launch: str) -> list[ObjectState]:
        """The jobs and pods of a launch. Raises KubectlError."""
        said = self._said(["get", "jobs,pods", f"--selector={LAUNCH_LABEL}={launch}", "--output=json"])
        return _decoded(said, _Items).items

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
        """Remove all objects of a launch; pods end in order. Raises KubectlError."""
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


def _decoded(said: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(said, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise KubectlError(f"kubectl describes objects in a way that is not understood: {error}") from error


def _first_line(process: subprocess.Popen[bytes], deadline_s: float) -> bytes:
    """Return the first printed line; empty after the deadline."""
    assert process.stdout is not None
    end_s = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = selector.select(max(end_s - time.monotonic(), 0.0))
    return process.stdout.readline() if ready else b""
