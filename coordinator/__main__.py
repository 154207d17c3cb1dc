"""`python -m remuda.coordinator`: a coordinator in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

from remuda.coordinator.settings import Limits, Settings
from remuda.logbook.streams import best_effort_stderr
from remuda.worker.process import exit_now, gc_frozen
from remuda.worker.profile import profiled
from remuda.worker.shutdown_guard import ShutdownGuard

GRACE_S = 3_600.0
"""An orderly end saves and evaluates a last checkpoint per experiment. Every step has a separate deadline; this
deadline is the last resort."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Run a coordinator in the foreground.")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--connection-file", type=Path, required=True)
    parser.add_argument("--bind", default=None, help="address to listen on (default: a free port of this host alone)")
    parser.add_argument("--advertise", default=None, help="host or host:port by which others reach it")
    parser.add_argument("--stream-port", type=int, default=0, help="port for files of workers without the runs folder")
    parser.add_argument("--persistent", action="store_true", help="own the runs folder and take up what was left there")
    parser.add_argument("--http", default=None, help="where health and metrics are served, such as 0.0.0.0:9310")
    parser.add_argument("--own-dir", type=Path, default=None, help="with --persistent: own this folder instead")
    parser.add_argument("--hand-over", action="store_true", help="on SIGTERM leave the runs to the next start")
    parser.add_argument("--idle-end", type=float, default=None, metavar="S", help="end after S seconds without a run")
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=SECONDS", help="see Limits; repeatable")
    parser.add_argument("--lifeline", type=int, default=None, help="file descriptor whose end means: stop")
    parser.add_argument("--profile", type=Path, default=None, help="folder for a profile of this process")
    arguments = parser.parse_args()
    with (
        best_effort_stderr(),
        ShutdownGuard(lifeline=arguments.lifeline, grace_s=GRACE_S) as guard,
        profiled(arguments.profile, "coordinator"),
    ):
        settings = Settings(
            arguments.runs_dir.absolute(),
            arguments.connection_file,
            arguments.bind,
            persistent=arguments.persistent,
            limits=Limits.of(arguments.limit),
            http=arguments.http,
            own_dir=arguments.own_dir,
            hands_over=arguments.hand_over,
            idle_end_s=arguments.idle_end,
            advertised=arguments.advertise,
            stream_port=arguments.stream_port,
        )
        with gc_frozen():
            from remuda.coordinator.service import Service  # most of what there is to import

            service = Service(settings, guard)
        service.run()


if __name__ == "__main__":
    main()
    exit_now(0)
