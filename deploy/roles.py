"""Runs a worker of a given role, in every child of the nanny."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psutil

from remuda.collector.inference import InferenceWork
from remuda.collector.service import CollectorWork
from remuda.deploy.supervision import EXIT_DONE, EXIT_FAILED, EXIT_ORPHANED, EXIT_REFUSED
from remuda.environments.processes import usable_cores
from remuda.evaluator.service import EvaluatorWork
from remuda.learner.reanalyzer import ReanalyzerWork
from remuda.learner.service import LearnerWork
from remuda.logbook.streams import printed
from remuda.wire.connection_file import ConnectionFile, ConnectionFileError, read, wait_for
from remuda.wire.conversation import RefusedError, UnreachableError
from remuda.wire.keys.folder import caller_keys
from remuda.wire.messages import PROTOCOL_VERSION, Assign, Register, Role
from remuda.wire.patience import CoordinatorLostError, Patience
from remuda.worker.link import Link, WorkerIdentity
from remuda.worker.process import bound_threads
from remuda.worker.profile import profiled
from remuda.worker.serve import HAND_IN_S, Work, serve
from remuda.worker.shutdown_guard import ShutdownGuard
from remuda.worker.stores.opening import NoFolderError, WorkerStores

if TYPE_CHECKING:
    from remuda.learner.ranks.leading import Recruits

FAREWELL_DEADLINE_S = 5.0
GRACE_S = 5.0
"""Seconds for the end of a worker, beside the time for handing in. The sum is less than the nanny's wait before
SIGKILL."""

_AFTER_REFUSAL = {"unknown": EXIT_FAILED, "dismissed": EXIT_FAILED, "closing": EXIT_DONE}
"""Exit codes by the code of the coordinator's Rejected; any other code is final."""


def run_worker(
    role: str,
    identity: WorkerIdentity,
    connection_file: Path,
    *,
    runs_dirs: Sequence[Path] = (),
    lifeline: int | None,
    coordinator_timeout_s: float,
    former_exit: str = "",
    hand_in_s: float = HAND_IN_S,
    profile: Path | None = None,
    recruits: Recruits | None = None,
) -> int:
    """Run a worker until it is dismissed; returns the exit code, which informs the nanny about the reason.

    The runs folder is searched in `runs_dirs`, beside the connection file, and at the path in that file; a worker
    without it works by streams. Waits `coordinator_timeout_s` for a missing or silent coordinator. `former_exit`
    describes the end of the former incarnation. A process that is asked to end waits at most `hand_in_s` until its
    collected work is stored. With `profile`, a profile is written to that folder. `recruits` gets the existing ranks of
    a learner; None: it starts them.
    """
    bound_threads()
    again = identity.incarnation > 1
    name = f"{role}_{identity.uuid}_{identity.incarnation:06d}"
    with printed(), ShutdownGuard(lifeline=lifeline, grace_s=GRACE_S + hand_in_s) as guard, profiled(profile, name):
        try:
            found = wait_for(
                connection_file,
                deadline_s=0.0 if again else coordinator_timeout_s,
                given_up=lambda: guard.ending,
            )
            link = Link(
                found,
                _register(cast("Role", role), identity, former_exit),
                look_again=lambda: _look_again(connection_file),
                on_failure=lambda: guard.end("the coordinator is lost or refuses this worker"),
                patience=Patience(coordinator_timeout_s, lambda text: _say(f"{role} {identity.uuid}: {text}")),
            )
            guard.on_end(link.wake)
            places = [*runs_dirs, connection_file.absolute().parent]
            places += [Path(found.runs_dir)] if found.runs_dir else []
            return _serve(link, guard, cast("Role", role), identity, coordinator_timeout_s, hand_in_s, places, recruits)
        except NoFolderError as error:
            _say(f"{role} {identity.uuid}: {error}")
            return EXIT_REFUSED
        except ConnectionFileError as error:
            if guard.ending:
                return EXIT_DONE
            _say(f"{role} {identity.uuid}: {error}")
            if connection_file.exists():
                return EXIT_REFUSED
            return EXIT_DONE if again else EXIT_ORPHANED  # a coordinator that ends in order removes its file
        except RefusedError as error:
            _say(f"{role} {identity.uuid}: refused: {error}")
            return _AFTER_REFUSAL.get(error.code, EXIT_REFUSED)
        except UnreachableError as error:
            if guard.ending:
                return EXIT_DONE
            _say(f"{role} {identity.uuid}: {error}")
            return EXIT_ORPHANED
        except CoordinatorLostError as error:
            _say(f"{role} {identity.uuid}: {error}")
            return EXIT_ORPHANED


def _say(text: str) -> None:
    """Print on standard error; errors are ignored, since a worker must not end for lack of a reader."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def _look_again(connection_file: Path) -> ConnectionFile | None:
    """Return the present connection file; None if it is missing or incomplete, as during a restart
    of the coordinator."""
    try:
        return read(connection_file)
    except ConnectionFileError:
        return None


def _serve(
    link: Link,
    guard: ShutdownGuard,
    role: Role,
    identity: WorkerIdentity,
    timeout_s: float,
    hand_in_s: float,
    places: Sequence[Path],
    recruits: Recruits | None,
) -> int:
    reason = "it failed"
    stores = WorkerStores(
        role,
        places,
        keys=lambda: caller_keys(link.connection, "worker"),
        host=lambda: link.connection.host_reached,
        wake=link.wake,
    )
    try:
        stores.registered(link.start(timeout_s, given_up=lambda: guard.ending))
        reason = serve(
            link, guard, _beginner(role, identity, link, guard, stores, recruits), stores.registered, hand_in_s
        )
        return EXIT_DONE
    finally:
        try:
            stores.close()
        finally:
            link.close(reason, FAREWELL_DEADLINE_S)


def _beginner(
    role: Role,
    identity: WorkerIdentity,
    link: Link,
    guard: ShutdownGuard,
    of_worker: WorkerStores,
    recruits: Recruits | None,
) -> Callable[[Assign], Work]:
    def begin(assign: Assign) -> Work:
        stores = of_worker.begin(assign)
        if role == "collector":
            return CollectorWork(assign, identity, link, stores, ending=lambda: guard.ending)
        if role == "evaluator":
            return EvaluatorWork.under(assign, identity, link, guard, stores)
        if role == "reanalyzer":
            return ReanalyzerWork(assign, identity, link, stores)
        if role == "inference":
            return InferenceWork(assign, identity, link, stores)
        return LearnerWork(assign, link, stores, recruits)

    return begin


def _register(role: Role, identity: WorkerIdentity, former_exit: str) -> Register:
    return Register(
        worker=identity.uuid,
        incarnation=identity.incarnation,
        role=role,
        host=platform.node(),
        pid=os.getpid(),
        protocol=PROTOCOL_VERSION,
        version=version("remuda"),
        cpus=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        former_exit=former_exit,
    )
