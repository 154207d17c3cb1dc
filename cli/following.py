"""`remuda evaluate --follow`: play the newest policy of a running run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from remuda.cli.errors import InputError
from remuda.cli.playing import EpisodeView, PlayedPolicies, folder_of
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.files.playable import NewestPolicy, Playable
from remuda.storage.checkpoint_index import CheckpointIndexError
from remuda.storage.run_folder import RunFolder
from remuda.training.journal import is_queued
from remuda.training.journal_database import is_open

LOOK_INTERVAL_S = 0.5
"""How long to wait before looking for a newer policy again."""


def follow_run(
    run_dir: Path,
    view: EpisodeView,
    *,
    policies: Sequence[str] = (),
    trust_code: bool = False,
    search: bool = True,
) -> None:
    """Play every newer policy until the run is over, its last one included; Ctrl-C ends this earlier. A run that is
    queued is waited for.

    If episodes are shown, the same policy plays again until there is a newer one. `policies` are the names of several
    policies, which play together. Without `search` all play by their networks alone. Raises CommandError.
    """
    newest = {
        name: NewestPolicy(folder_of(run_dir, name), trust_code=trust_code, search=search) for name in policies or [""]
    }
    journal, current = RunFolder(run_dir).journal, dict[str, Playable]()
    played, has_waited = 0, False
    try:
        while True:
            # Before looking for a policy: the last one may be written in between. A journal that is opened between the
            # first two looks is noticed by the third.
            opened = is_open(journal)
            queued = not opened and is_queued(journal)
            goes_on = opened or queued or is_open(journal)
            newer = {name: found for name, one in newest.items() if (found := one.newer()) is not None}
            current |= newer
            if not newer and not goes_on:
                break
            if not newer and queued and not has_waited:
                has_waited = True
                view.say("it waits for workers")
            if len(current) < len(newest) or not (newer or view.shows):
                time.sleep(LOOK_INTERVAL_S)
                continue
            played += bool(newer)
            view.play(PlayedPolicies({name: current[name] for name in newest}))
    except KeyboardInterrupt:
        view.say(f"no longer following; the run was not touched (policies played: {played})")
        return
    except (CheckpointError, CheckpointIndexError) as error:
        raise InputError(str(error)) from error
    if not played:
        raise InputError(f"{run_dir} has no policy to play: the run is over, and no checkpoint was saved")
    view.say(f"the run is over (policies played: {played})")
