"""Whether playing a run folder would run code that somebody else may have put there.

Four things in a run folder are programs: what its config names as the environment (`env.make`, or the module in
`env.id`) and as the algorithm (`policy.type`), model/model.pt (TorchScript), and vars.pkl (a pickle). Those of a user's
own folder run without a question, except for the pickle; those of others only for a user who says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from remuda.config.schema import EnvConfig, ExperimentConfig
from remuda.storage.run_folder import MODEL, RunFolder

TRUST = "say --trust-code (in Python: trust_code=True) if you trust whoever made it"


def distrusted_environment(env: EnvConfig, *, source_dir: str | None, run_dir: Path) -> str | None:
    """Why building this environment of a run takes trust; None where it does not."""
    reference = env.make if env.make is not None else env.id
    named = f"env.make = {env.make!r}" if env.make is not None else f"env.id = {env.id!r}"
    run = RunFolder(run_dir)
    files = (run.root, run.config_json, run.model, run.vars_pkl, run_dir / MODEL)
    return _distrusted(reference or "", named, files, source_dir=source_dir, run_dir=run_dir)


def distrusted_algorithm(config: ExperimentConfig, *, run_dir: Path, checkpoint: Path) -> str | None:
    """Why importing the algorithm of this checkpoint of a run takes trust; None where it does not."""
    kind = config.policy.type
    files = (run_dir, RunFolder(run_dir).config_json, checkpoint.parent, checkpoint)
    return _distrusted(kind, f"policy.type = {kind!r}", files, source_dir=config.source_dir, run_dir=run_dir)


def _distrusted(
    reference: str, named: str, files: Iterable[Path], *, source_dir: str | None, run_dir: Path
) -> str | None:
    """`reference` may be `module:name`; anything else names no code."""
    module, colon, _ = reference.partition(":")
    if not colon:
        return None
    owner = _of_others(*files)
    if owner is not None:
        return f"{owner}, and its config names code to run ({named}): read that first, then {TRUST}"
    if _lies_in(module, [*sys.path, *filter(None, [source_dir])], run_dir.resolve()):
        return (
            f"the module that the config of {run_dir} names ({named}) lies in the run folder itself, and so came with "
            f"it: read it first, then {TRUST}"
        )
    return None


def distrusted_model(folder: Path) -> str | None:
    """Why opening model.pt in this model/ folder takes trust; None where it does not."""
    owner = _of_others(folder, folder / MODEL)
    if owner is None:
        return None
    return f"{owner}, and model.pt is a program (TorchScript), which may write files: play a checkpoint, or {TRUST}"


def _of_others(*paths: Path) -> str | None:
    """The first that is not the user's own."""
    for path in paths:
        try:
            owner = path.stat().st_uid
        except OSError:
            continue  # it is not there
        if owner != os.geteuid():
            return f"{path} belongs to another user (number {owner}, you are {os.geteuid()})"
    return None


def trusted_source_dir(source_dir: str | None, *, run_dir: Path) -> str | None:
    """The folder that modules may be taken from unasked: one in the run folder is none."""
    inside = source_dir is not None and _is_within(Path(source_dir), run_dir.resolve())
    return None if inside else source_dir


def _lies_in(module: str, folders: Iterable[str], run_dir: Path) -> bool:
    """Whether Python would find the module, or a package around it, in the run folder."""
    parts = module.split(".")
    for folder in folders:
        place = Path(folder)
        for part in parts:
            with suppress(OSError):
                if any(path.name.split(".")[0] == part and _is_within(path, run_dir) for path in place.iterdir()):
                    return True
            place = place / part
    return False


def _is_within(path: Path, folder: Path) -> bool:
    path = path.resolve()
    return path == folder or folder in path.parents
