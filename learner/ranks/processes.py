"""Starts, watches and ends the other ranks as processes of this machine, for a lease.

The ranks meet in a folder that only this user can open, and connect over the loopback interface.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from torch._C._distributed_c10d import FileStore

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import serve_leases
from remuda.learner.ranks.leading import Followers
from remuda.learner.ranks.meeting import Meeting
from remuda.policy.ranks import RankLostError
from remuda.wire.child_end import end_within
from remuda.worker.process import bound_threads

END_S = 5.0
"""Longest time for a rank to end after its lifeline breaks; usually milliseconds."""
_LOOK_S = 0.02


class RankProcesses(Followers):
    """Child processes with a lifeline to this process: the children end when this process ends, in any way."""

    def __init__(self, config: ExperimentConfig) -> None:
        """Start the ranks from 1 on."""
        self._folder = tempfile.mkdtemp(prefix="remuda-ranks-")
        store = Path(self._folder, "store")
        super().__init__(_meeting(store))
        self._processes: list[subprocess.Popen[bytes]] = []
        reading_end, self._lifeline = os.pipe()
        try:
            with store.open("rb") as file:
                for rank in range(1, config.learner.ranks):
                    self._processes.append(_started(rank, self._folder, file.fileno(), reading_end))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(reading_end)

    def ended(self, within_s: float = 0.0) -> str:
        """See Followers."""
        deadline_s = time.monotonic() + within_s
        while True:
            found = "; ".join(
                f"learner rank {rank} (pid {process.pid}) ended {_how(process.returncode)}"
                for rank, process in enumerate(self._processes, start=1)
                if process.poll() is not None
            )
            if found or time.monotonic() >= deadline_s:
                return found
            time.sleep(_LOOK_S)

    def close(self) -> None:
        """See Followers."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        for process in self._processes:
            end_within(process, END_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def _meeting(store: Path) -> Meeting:
    return Meeting(FileStore(str(store)))


def _started(rank: int, folder: str, store: int, lifeline: int) -> subprocess.Popen[bytes]:
    options = ["--rank", str(rank), "--folder", folder, "--store", str(store), "--lifeline", str(lifeline)]
    return subprocess.Popen(
        [sys.executable, "-m", "remuda.learner.ranks.processes", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        pass_fds=(store, lifeline),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C at the terminal must reach only its owner
    )


def _how(exit_code: int) -> str:
    return f"by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"with exit code {exit_code}"


def main() -> None:
    """Be a rank: entry point of `python -m remuda.learner.ranks.processes`."""
    parser = argparse.ArgumentParser(description="Learn with rank 0 of a learner, which starts this process.")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--folder", required=True, help="where the ranks meet; removed with rank 0")
    parser.add_argument("--store", type=int, required=True, help="the file in the folder, open")
    parser.add_argument("--lifeline", type=int, required=True, help="the reading end of a pipe of rank 0's")
    given = parser.parse_args()
    ending = threading.Thread(target=_end_with_rank_0, args=(given.lifeline, given.folder), daemon=True)
    ending.start()
    bound_threads()
    try:
        # not by name: torch waits minutes for a removed file, and meanwhile no thread can end this process
        serve_leases(_meeting(Path(f"/proc/self/fd/{given.store}")), given.rank, local_rank=given.rank)
    except RankLostError:
        ending.join()  # rank 0 has ended, or will end this process


def _end_with_rank_0(lifeline: int, folder: str) -> None:
    """End this process at once when rank 0 ends in any way: this process holds only copies."""
    os.read(lifeline, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
