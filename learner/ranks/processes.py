"""The ranks besides rank 0 as processes of this machine: started for one lease, watched, and ended with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.line import Line
from remuda.learner.ranks.local_line import LocalLine, line_pair
from remuda.policy.ranks import RankLostError
from remuda.wire.child_end import end_within

END_S = 5.0
"""How long a rank may take to end once its line is broken; it takes milliseconds."""
_LOOK_S = 0.02


class RankProcesses:
    """Child processes, each at the other end of a line that only this process holds: they end when it ends, however it
    ends."""

    def __init__(self, config: ExperimentConfig) -> None:
        """Start the ranks from 1 on."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lines: list[LocalLine] = []
        try:
            for rank in range(1, config.learner.ranks):
                self._start(rank, config.limits.rank_s)
        except BaseException:
            self.close()
            raise

    @property
    def lines(self) -> Sequence[Line]:
        """To the ranks, in order."""
        return self._lines

    @property
    def pids(self) -> Sequence[int]:
        """Of the ranks, in order."""
        return [process.pid for process in self._processes]

    def describe(self) -> str:
        """Which processes they are, for people."""
        return ", ".join(f"rank {rank}: pid {pid}" for rank, pid in enumerate(self.pids, start=1))

    def check(self) -> None:
        """Raise RankLostError if one of them has ended."""
        if ended := self._ended():
            raise RankLostError(ended)

    def explained(self, error: RankLostError) -> RankLostError:
        """If a rank has ended, an error that says which and how, in place of one that only says who did not answer."""
        if not any(line.is_broken() for line in self._lines):
            return error
        deadline_s = time.monotonic() + END_S  # a line breaks a moment before its process has ended
        while not (ended := self._ended()) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        return RankLostError(ended) if ended else error

    def close(self) -> None:
        """End them; may be called again."""
        for line in self._lines:
            line.close()
        for process in self._processes:
            end_within(process, END_S)

    def _start(self, rank: int, timeout_s: float) -> None:
        own_end, other_end = line_pair()
        with other_end:
            options = {"--line": other_end.fileno(), "--rank": rank, "--timeout-s": timeout_s}
            process = _started(other_end, [str(part) for option in options.items() for part in option])
        self._processes.append(process)
        self._lines.append(LocalLine(own_end, f"learner rank {rank} (pid {process.pid})", timeout_s))

    def _ended(self) -> str:
        """Which ranks have ended and how, for people; empty if all live."""
        return "; ".join(
            f"learner rank {rank} (pid {process.pid}) ended {_how(process.returncode)}"
            for rank, process in enumerate(self._processes, start=1)
            if process.poll() is not None
        )


def _started(inherited: socket.socket, options: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "remuda.learner.ranks.process", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        pass_fds=(inherited.fileno(),),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C at the terminal must reach only its owner
    )


def _how(exit_code: int) -> str:
    return f"by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"with exit code {exit_code}"
