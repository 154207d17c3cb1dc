"""`remuda evaluate --follow`: play the newest policy of a running run."""

from __future__ import annotations

import time
from pathlib import Path

from remuda.cli.errors import InputError
from remuda.cli.playing import Player
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.playable import NewestPolicy, Playable
from remuda.storage.checkpoint_index import CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import is_queued
from remuda.training.journal_database import is_open

LOOK_INTERVAL_S = 0.5
"""How long to wait before looking for a newer policy again."""


def follow_run(run_dir: Path, player: Player, *, trust_code: bool = False, search: bool = True) -> None:
    """Play every newer policy until the run is over, its last one included; Ctrl-C ends this earlier. A run that is
    queued is waited for.

    If episodes are shown, the same policy plays again until there is a newer one. Without `search` all play by their
    networks alone. Raises CommandError.
    """
    newest, journal = NewestPolicy(run_dir, trust_code=trust_code, search=search), RunFolder(run_dir).journal
    current: Playable | None = None
    played, has_waited = 0, False
    try:
        while True:
            # Before looking for a policy: the last one may be written in between. A journal that is opened between the
            # first two looks is noticed by the third.
            opened = is_open(journal)
            queued = not opened and is_queued(journal)
            goes_on = opened or queued or is_open(journal)
            newer = newest.newer()
            if newer is None and not goes_on:
                break
            if newer is None and queued and not has_waited:
                has_waited = True
                player.say("it waits for workers")
            if newer is None and not (player.shows and current is not None):
                time.sleep(LOOK_INTERVAL_S)
                continue
            played += newer is not None
            current = newer or current
            assert current is not None, "there is a newer policy, or one to show again"
            player.play(current)
    except KeyboardInterrupt:
        player.say(f"no longer following; the run was not touched (policies played: {played})")
        return
    except (CheckpointError, CheckpointIndexError) as error:
        raise InputError(str(error)) from error
    if not played:
        raise InputError(f"{run_dir} has no policy to play: the run is over, and no checkpoint was saved")
    player.say(f"the run is over (policies played: {played})")
