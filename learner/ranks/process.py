"""A learner rank besides rank 0, as a process: rank 0 starts it, and it ends with it."""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
import threading
import traceback
from pathlib import Path

from remuda.config.schema import ExperimentConfig
from remuda.learner.ranks.following import follow
from remuda.learner.ranks.group import RankGroup, meeting_place
from remuda.policy.ranks import RankLostError
from remuda.worker.threads import bound_threads

STORE_FILE, CONFIG_FILE, STATE_FILE = "store", "config.json", "state"
"""Where the ranks find each other, and what they begin with. It is read from files that only this user can open, since
a config can name code, and the connections between ranks have no keys."""
EXIT_FAILED = 1
LIFELINE_S = 1.0
"""When a process dies, the system may close its connections a moment before its pipes."""


def arrival_file(folder: Path, rank: int) -> Path:
    """What a rank makes when it is about to connect."""
    return folder / f"here_{rank}"


def error_file(folder: Path, rank: int) -> Path:
    """Where a rank writes why it failed."""
    return folder / f"error_{rank}.txt"


def main() -> None:
    """Entry point of `python -m remuda.learner.ranks.process`."""
    parser = argparse.ArgumentParser(description="Learn with rank 0 of a learner, which starts this process.")
    parser.add_argument("--folder", type=Path, required=True, help="where the ranks find each other")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--lifeline", type=int, required=True, help="file descriptor of a pipe; end when it breaks")
    parser.add_argument("--start-s", type=float, required=True, help="seconds that the ranks may take to come together")
    parser.add_argument("--timeout-s", type=float, required=True, help="seconds that a rank may take to answer")
    given = parser.parse_args()
    ending = threading.Thread(
        target=_end_with_rank_0, args=(given.lifeline, given.folder), name="remuda-lifeline", daemon=True
    )
    ending.start()
    bound_threads()
    try:
        arrival_file(given.folder, given.rank).touch()
        store = meeting_place(given.folder / STORE_FILE, given.world_size)
        group = RankGroup(
            store, rank=given.rank, world_size=given.world_size, start_s=given.start_s, timeout_s=given.timeout_s
        )
        config = ExperimentConfig.model_validate_json((given.folder / CONFIG_FILE).read_bytes())
        follow(group, config, (given.folder / STATE_FILE).read_bytes())
    except Exception as error:
        if isinstance(error, RankLostError) and select.select([given.lifeline], [], [], LIFELINE_S)[0]:
            ending.join()  # rank 0 is gone: that is no error of this one, and the thread ends the process
        traceback.print_exc()
        error_file(given.folder, given.rank).write_text(f"{type(error).__name__}: {error}")
        sys.stderr.flush()
        os._exit(EXIT_FAILED)  # what torch's threads still wait for must not hold the process


def _end_with_rank_0(lifeline: int, folder: Path) -> None:
    """End this process at once when rank 0 ends, however it ends: it holds nothing that would be lost. If rank 0 was
    killed, nobody else removes the folder."""
    os.read(lifeline, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
