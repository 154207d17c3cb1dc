"""Whether playing a run folder would run code of another author.

Four things in a run folder are programs: the environment (`env.make`, or the module in `env.id`) and the algorithm
(`policy.type`, and what its settings name) that its config names, model/model.pt (TorchScript), and vars.pkl (a
pickle). In the user's own folder they run without asking, except for the pickle; in a folder of others they run only if
the user allows it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.storage.run_folder import MODEL, RunFolder

TRUST = "use --trust-code (in Python: trust_code=True) if you trust its author"


def distrusted_environment(env: EnvConfig, *, source_dir: str | None, run_dir: Path) -> str | None:
    """Why building this environment of a run needs the user's trust; None if it does not."""
    reference = env.make if env.make is not None else env.id
    if env.kind == "pettingzoo" and env.make is None:
        reference = f"{env.id}:"  # the name of a module
    named = f"env.make = {env.make!r}" if env.make is not None else f"env.id = {env.id!r}"
    run = RunFolder(run_dir)
    files = (run.root, run.config_json, run.model, run.vars_pkl, run_dir / MODEL)
    return _distrusted(reference or "", named, files, source_dir=source_dir, run_dir=run_dir)


def distrusted_algorithm(config: ExperimentConfig, *, run_dir: Path, checkpoint: Path) -> str | None:
    """Why importing the algorithm of this checkpoint of a run takes trust; None where it does not."""
    files = (run_dir, RunFolder(run_dir).config_json, checkpoint.parent, checkpoint)
    for setting, reference in config.user_code.items():
        named = f"{setting} = {reference!r}"
        if distrusted := _distrusted(reference, named, files, source_dir=config.source_dir, run_dir=run_dir):
            return distrusted
    return None


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
            f"the module that the config of {run_dir} names ({named}) is in the run folder itself, so it came with the "
            f"folder: read it first, then {TRUST}"
        )
    return None


def distrusted_model(folder: Path) -> str | None:
    """Why opening model.pt in this model/ folder needs the user's trust; None if it does not."""
    owner = _of_others(folder, folder / MODEL)
    if owner is None:
        return None
    return f"{owner}, and model.pt is a program (TorchScript) that may write files: play a checkpoint, or {TRUST}"


def distrusted_file(*paths: Path) -> str | None:
    """Why opening these files, which name an environment to build, needs the user's trust; None if it does not."""
    owner = _of_others(*paths, *(path.parent for path in paths))
    return None if owner is None else f"{owner}, and names code to run, its environment: read that first, then {TRUST}"


def _of_others(*paths: Path) -> str | None:
    """A text about the first path that belongs to another user; None if there is none."""
    for path in paths:
        try:
            owner = path.stat().st_uid
        except OSError:
            continue  # it does not exist
        if owner != os.geteuid():
            return f"{path} belongs to another user (user id {owner}, yours is {os.geteuid()})"
    return None


def trusted_source_dir(source_dir: str | None, *, run_dir: Path) -> str | None:
    """The folder from which modules may be imported without asking; None if it is in the run folder."""
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
