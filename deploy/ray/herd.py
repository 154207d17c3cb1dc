"""Workers of a launch as actors, which Ray places and restarts: their requests and answers."""

from __future__ import annotations

import argparse
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from uuid import uuid4

import msgspec

from remuda.deploy.ray.engine import Actor, Answer, BrokenError, FailedError, Introduction, LostError, Order, RayEngine
from remuda.deploy.ray.launcher import SAID, RayPlan
from remuda.deploy.supervision import EXIT_DONE, EXIT_FAILED, SupervisedWorker, a_role_keeps_dying, worst_exit_code
from remuda.logbook.lines import unforgeable
from remuda.storage.atomic import write_text
from remuda.wire.connection_file import ConnectionFileError, wait_for
from remuda.wire.keys.folder import HerdKeys
from remuda.wire.keys.secret_file import KeyFileError
from remuda.wire.messages import shortened

PLACING_S = 10.0
"""Seconds of waiting for a place before the user is informed; repeated at every doubling."""
POLL_S = 0.2
AGAIN_S = 0.2
"""Seconds between two requests to an actor with a restarting process: each request fails at once."""
FAREWELL_S = 6.0
"""Seconds until a coordinator is gone after dismissing all workers."""


@dataclass
class ActorWorker:
    """One worker, its actor, and its last request."""

    worker: SupervisedWorker
    actor: Actor = None
    answer: Answer = None
    """Pending answer to the last request; None if a request is next."""
    works: bool = False
    """True if the last request is for work."""
    since_s: float = 0.0
    """Begin of the wait for a place."""
    say_after_s: float = PLACING_S
    has_left: bool = False
    """True after an orderly end of the worker for a still unknown reason."""
    has_begun: bool = False
    """True once a process of this worker has introduced itself."""

    @property
    def name(self) -> str:
        """For Ray, for the list of keys, and for people."""
        return f"{self.worker.role}-{self.worker.uuid[:8]}"


class Herd:
    """Keeps every worker at work. Reads no clock and calls Ray only through the engine."""

    def __init__(
        self,
        plan: RayPlan,
        engine: RayEngine,
        connection_file: Path,
        let_in: Callable[[str, str], None],
        say: Callable[[str], None],
    ) -> None:
        """`let_in` receives a name and a public key; the coordinator then accepts the key as a
        worker's, in place of the name's former key. `say` receives lines for the user."""
        roles = [role for role, count in plan.counts.items() for _ in range(count)]
        self.posts = [ActorWorker(SupervisedWorker(role, str(uuid4()))) for role in roles]
        self._engine = engine
        self._let_in = let_in
        self._plan = plan
        self._connection_file = connection_file
        self._say = say
        self.unusable: str | None = None
        """Reason why no worker of some role can work in this cluster, if found."""

    @property
    def over(self) -> bool:
        """True if no worker is to be started again."""
        return all(post.worker.given_up for post in self.posts)

    @property
    def hopeless(self) -> bool:
        """True if every worker of a role keeps dying."""
        return a_role_keeps_dying([post.worker for post in self.posts])

    @property
    def exit_code(self) -> int:
        """Worst exit code of finally ended workers."""
        return worst_exit_code(post.worker for post in self.posts)

    def step(self, now_s: float) -> None:
        """Send due requests, and handle finished answers."""
        for post in self.posts:
            if post.answer is None and post.worker.due_s is not None and post.worker.due_s <= now_s:
                (self._left if post.has_left else self._ask)(post, now_s)
        waiting = [post.answer for post in self.posts if post.answer is not None]
        if not waiting:
            return
        ready = set(self._engine.ready(waiting, POLL_S))
        for post in self.posts:
            if post.answer is not None and post.answer in ready:
                self._answered(post, now_s)
            elif post.answer is not None and not post.works:
                self._note_waiting(post, now_s)

    def end(self) -> None:
        """End every actor."""
        for post in self.posts:
            if post.actor is not None:
                self._engine.end(post.actor)

    def _ask(self, post: ActorWorker, now_s: float) -> None:
        """Ask for the key of this worker's next process."""
        if post.actor is None:
            post.actor = self._engine.place(post.worker.role, post.name)
        post.answer, post.works = self._engine.ask_to_introduce(post.actor), False
        post.since_s = post.since_s or now_s

    def _answered(self, post: ActorWorker, now_s: float) -> None:
        """Handle an answer. If only the process has ended, the worker continues in the next process."""
        answer, post.answer = post.answer, None
        try:
            found = self._engine.take(answer)
        except LostError as error:
            if post.works:
                self._ended(post, EXIT_FAILED, now_s, f"the loss of its process ({error})")
            else:
                post.worker.due_s = now_s + AGAIN_S  # Ray is about to start it
                self._note_waiting(post, now_s)
        except FailedError as error:
            self._ended(post, EXIT_FAILED, now_s, f"an error ({error})")
            self._engine.renew(post.actor)
        except BrokenError as error:
            self._engine.end(post.actor)
            post.actor = None  # Ray starts it no more
            if not post.works:
                post.worker.started_s = now_s  # it has died early
            self._ended(post, EXIT_FAILED, now_s, f"the end of its actor ({error})")
            if not any(each.has_begun for each in self._of(post.worker.role)):
                self.unusable = f"no {post.worker.role} can begin: {error}"
        else:
            if isinstance(found, bytes):
                self._introduced(post, msgspec.json.decode(found, type=Introduction), now_s)
            else:
                self._worked(post, found, now_s)

    def _introduced(self, post: ActorWorker, introduction: Introduction, now_s: float) -> None:
        try:
            self._let_in(post.name, introduction.public_key)
            connection = self._connection_file.read_text(encoding="utf-8")
        except (KeyFileError, OSError) as error:
            if self._connection_file.exists():  # others work, and the cause may pass
                post.worker.started_s = now_s
                self._ended(post, EXIT_FAILED, now_s, f"a key that cannot be let in ({error})")
            else:
                post.worker.ended(EXIT_DONE, now_s)  # the coordinator has ended in order meanwhile
            return
        post.has_begun, post.since_s, post.say_after_s = True, 0.0, PLACING_S
        incarnation = post.worker.started(now_s)
        order = Order(
            uuid=post.worker.uuid,
            incarnation=incarnation,
            former_exit=shortened(post.worker.former_exit),
            connection_path=str(self._connection_file),
            connection=connection,
            runs_dir=str(self._plan.runs_dir),
            coordinator_timeout_s=self._plan.coordinator_timeout_s,
            profile=None if self._plan.profile is None else str(self._plan.profile),
        )
        post.answer, post.works = self._engine.ask_to_work(post.actor, msgspec.json.encode(order)), True

    def _worked(self, post: ActorWorker, exit_code: int, now_s: float) -> None:
        """Handle a worker's own end. The reason of an orderly end shows a little later: a coordinator that dismissed
        the workers is gone by then."""
        if exit_code == EXIT_DONE:
            post.has_left, post.worker.due_s = True, now_s + FAREWELL_S
            return
        self._ended(post, exit_code, now_s, "")
        if post.worker.given_up is None:
            self._engine.renew(post.actor)
        elif all(each.worker.given_up for each in self._of(post.worker.role)):
            self.unusable = f"no {post.worker.role} is left: each {post.worker.given_up}; Ray's logs say why"

    def _left(self, post: ActorWorker, now_s: float) -> None:
        """Decide after an orderly end: a dismissed worker stays ended; a worker that ended with its node continues in
        another process."""
        post.has_left, post.worker.due_s = False, None
        if not self._connection_file.exists():
            post.worker.ended(EXIT_DONE, now_s)
            return
        self._ended(post, EXIT_FAILED, now_s, "a request to end")
        self._engine.renew(post.actor)

    def _of(self, role: str) -> list[ActorWorker]:
        return [post for post in self.posts if post.worker.role == role]

    def _ended(self, post: ActorWorker, exit_code: int, now_s: float, how: str) -> None:
        self._say(f"{post.name} {post.worker.ended(exit_code, now_s, how)}")

    def _note_waiting(self, post: ActorWorker, now_s: float) -> None:
        if now_s - post.since_s >= post.say_after_s:
            post.say_after_s *= 2
            waited = f"{post.name} has waited {now_s - post.since_s:.0f} s for a place"
            self._say(f"{waited}: it {self._engine.shortage(post.worker.role)}")


START_DEADLINE_S = 60.0
"""Seconds for the coordinator's start."""


class StopRequest:
    """True once this process must end: after a signal, or the end of the lifeline."""

    def __init__(self, lifeline: int | None) -> None:
        self._lifeline = lifeline
        self._signalled = False

    def watch_signals(self) -> None:
        """Take SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        """True once asked."""
        if self._lifeline is not None and not self._signalled:
            readable, _, _ = select.select([self._lifeline], [], [], 0.0)
            self._signalled = bool(readable)
        return self._signalled

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True


def say(text: str) -> None:
    """A line for the user."""
    print(unforgeable(f"{SAID}{text}"), flush=True)


def supervise(plan: RayPlan, engine: RayEngine, connection_file: Path, stop: Callable[[], bool]) -> int:
    """Keep the workers of a plan at work until asked to end; returns the exit code. Raises ConnectionFileError."""
    connection = wait_for(connection_file, START_DEADLINE_S, given_up=stop)
    with HerdKeys(Path(connection.keys_dir)) as keys:
        herd = Herd(plan, engine, connection_file, keys.let_in, say)
        try:
            while not (stop() or herd.over or herd.hopeless or herd.unusable):
                herd.step(time.monotonic())
                time.sleep(0.05)
        finally:
            herd.end()
        if herd.unusable:
            say(herd.unusable)
        return EXIT_FAILED if herd.unusable or herd.hopeless else herd.exit_code


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Have the workers of a launch placed by Ray.")
    parser.add_argument("--plan", required=True, help="JSON, see RayPlan")
    parser.add_argument("--connection-file", type=Path, required=True)
    parser.add_argument("--node-file", type=Path, required=True, help="where to write this node's address")
    parser.add_argument("--lifeline", type=int, default=None, help="file descriptor of a pipe; end when it breaks")
    arguments = parser.parse_args()
    stop = StopRequest(arguments.lifeline)
    stop.watch_signals()
    plan = RayPlan.model_validate_json(arguments.plan)
    try:
        engine = RayEngine(plan.settings, plan.counts)
    except BrokenError as error:
        sys.exit(f"{error}")
    stop.watch_signals()  # Ray has put its own in their place
    try:
        write_text(arguments.node_file, engine.node_ip, durable=False)
        say(f"joined a cluster of {engine.nodes} {'node' if engine.nodes == 1 else 'nodes'}")
        exit_code = supervise(plan, engine, arguments.connection_file, stop)
    except ConnectionFileError as error:
        exit_code = EXIT_DONE if stop() else EXIT_FAILED
        print(error, file=sys.stderr)
    finally:
        engine.close()
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
