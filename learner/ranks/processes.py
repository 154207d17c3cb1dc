"""The processes of the ranks besides rank 0, as rank 0 sees them: started, watched, and ended with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.group import RankGroup, meeting_place
from remuda.learner.ranks.process import CONFIG_FILE, STATE_FILE, STORE_FILE, arrival_file, error_file
from remuda.policy.ranks import RankLostError

END_S = 5.0
"""How long a rank may take to end once its lifeline is broken; it takes milliseconds."""
_LOOK_S = 0.02


class RankProcesses:
    """Child processes with a lifeline that only this process holds: they end when it ends, however it ends."""

    def __init__(self, config: ExperimentConfig, state: bytes) -> None:
        """Start the ranks from 1 on. They find each other, the config and the algorithm's state in a folder that only
        this user may enter."""
        self._world_size = config.learner.ranks
        self._limits = config.limits
        self._folder = Path(tempfile.mkdtemp(prefix="remuda-ranks-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        reading_end, self._lifeline = os.pipe()
        try:
            (self._folder / CONFIG_FILE).write_text(config.model_dump_json())
            (self._folder / STATE_FILE).write_bytes(state)
            for rank in range(1, self._world_size):
                self._processes.append(self._start(rank, reading_end))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(reading_end)

    @property
    def pids(self) -> Sequence[int]:
        """Of the ranks, in order."""
        return [process.pid for process in self._processes]

    def connect(self) -> RankGroup:
        """Wait for all of them and connect. Raises RankLostError."""
        deadline_s = time.monotonic() + self._limits.prepare_s
        while not all(arrival_file(self._folder, rank).exists() for rank in range(1, self._world_size)):
            self.check()
            if time.monotonic() > deadline_s:
                raise RankLostError(f"the learner ranks did not start within {self._limits.prepare_s:g} s")
            time.sleep(_LOOK_S)
        return RankGroup(
            meeting_place(self._folder / STORE_FILE, self._world_size),
            rank=0,
            world_size=self._world_size,
            start_s=self._limits.rank_s,
            timeout_s=self._limits.rank_s,
        )

    def check(self) -> None:
        """Raise RankLostError if one of them has ended."""
        if ended := self._ended():
            raise RankLostError(ended)

    def explained(self, error: RankLostError) -> RankLostError:
        """If a rank has ended, an error that says which and how, in place of one that only says who did not answer."""
        deadline_s = time.monotonic() + END_S  # a connection is closed a moment before its process has ended
        while not (ended := self._ended()) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        return RankLostError(ended) if ended else error

    def close(self) -> None:
        """End them; may be called again."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        for process in self._processes:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, rank: int, lifeline: int) -> subprocess.Popen[bytes]:
        numbers = {
            "--rank": rank,
            "--world-size": self._world_size,
            "--lifeline": lifeline,
            "--start-s": self._limits.rank_s,
            "--timeout-s": self._limits.rank_s,
        }
        options = [str(part) for option in numbers.items() for part in option]
        return subprocess.Popen(
            [sys.executable, "-m", "remuda.learner.ranks.process", "--folder", str(self._folder), *options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            pass_fds=(lifeline,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C at the terminal must reach only its owner
        )

    def _ended(self) -> str:
        """Which ranks have ended and how, for people; empty if all live."""
        return "; ".join(
            f"learner rank {rank} (pid {process.pid}) ended {self._how(rank, process.returncode)}"
            for rank, process in enumerate(self._processes, start=1)
            if process.poll() is not None
        )

    def _how(self, rank: int, exit_code: int) -> str:
        with contextlib.suppress(OSError):
            return f"by an error: {error_file(self._folder, rank).read_text(errors='replace')}"
        return f"by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"with exit code {exit_code}"
