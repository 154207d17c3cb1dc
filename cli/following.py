"""`remuda evaluate --follow`: watch the newest policy while its run goes on."""

from __future__ import annotations

import time
from pathlib import Path

from remuda.cli.errors import InputError
from remuda.cli.playing import Player
from remuda.policy.checkpoint_file import CheckpointError
from remuda.policy.newest import NewestPolicy
from remuda.policy.playable import Playable
from remuda.storage.checkpoint_index import CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import is_open

LOOK_INTERVAL_S = 0.5
"""How long to wait where there is no newer policy."""


def follow_run(run_dir: Path, player: Player, *, trust_code: bool = False) -> None:
    """Play every newer policy until the run is over, its last one included; Ctrl-C ends it sooner.

    Where episodes are shown, the same policy plays on until there is a newer one. Raises CommandError.
    """
    newest, journal = NewestPolicy(run_dir, trust_code=trust_code), RunFolder(run_dir).journal
    current: Playable | None = None
    played = 0
    try:
        while True:
            goes_on = is_open(journal)  # asked before looking: the last policy may come in between
            newer = newest.newer()
            if newer is None and not goes_on:
                break
            if newer is None and not (player.shows and current is not None):
                time.sleep(LOOK_INTERVAL_S)
                continue
            played += newer is not None
            current = newer or current
            assert current is not None, "there is a newer one, or one to be shown again"
            player.play(current)
    except KeyboardInterrupt:
        player.say(f"no longer following; the run is left alone (policies played: {played})")
        return
    except (CheckpointError, CheckpointIndexError) as error:
        raise InputError(str(error)) from error
    if not played:
        raise InputError(f"{run_dir} has no policy to play: the run is over, and no checkpoint was saved")
    player.say(f"the run is over (policies played: {played})")
