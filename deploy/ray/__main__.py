"""`python -m remuda.deploy.ray`: talks with Ray for one launch, and ends with it.

Ray runs in this process, not in the process of `remuda launch`: it has threads and signal handlers, and ends its
process when its cluster is lost.
"""

from __future__ import annotations

import argparse
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from remuda.deploy.ray.engine import BrokenError, RayEngine
from remuda.deploy.ray.herd import Herd, LaunchTerms
from remuda.deploy.ray.launcher import SAID, RayPlan
from remuda.deploy.supervision import EXIT_DONE, EXIT_FAILED
from remuda.logbook.lines import unforgeable
from remuda.storage.atomic import write_text
from remuda.wire.connection_file import ConnectionFileError, wait_for
from remuda.wire.keys.folder import HerdKeys

START_DEADLINE_S = 60.0
"""Seconds for the coordinator's start."""


class StopRequest:
    """True once this process has been asked to end: by a signal, or by the end of its lifeline."""

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
        terms = LaunchTerms(connection_file, plan.runs_dir, plan.coordinator_timeout_s, plan.profile)
        herd = Herd(plan.counts, engine, keys.let_in, terms, say)
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
