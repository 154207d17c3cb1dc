"""Builds the environment of a finished or copied run again, with fallbacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import gymnasium

from remuda.config.environment import EnvConfig
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import SingleEnv, make_single, shown
from remuda.storage.env_files import unpickle_environment
from remuda.storage.run_folder import MODEL, RunFolder

_UNSEEN = ("dummy", "offscreen")
"""Video drivers of SDL that show no window."""


def rebuild(
    env: EnvConfig,
    *,
    source_dir: str | None,
    run_dir: Path,
    render_mode: str | None = None,
    trust_code: bool = False,
) -> SingleEnv:
    """Build one environment from the run's config; if this fails, with `trust_code`, take the copy in vars.pkl.

    Code that may come from other users (see trust.py) runs only with `trust_code`. With a `render_mode`, the
    environment must render. Raises EnvironmentBuildError with the attempts made and the remaining ways.
    """
    distrusted = None if trust_code else distrusted_environment(env, source_dir=source_dir, run_dir=run_dir)
    if distrusted is not None:
        raise EnvironmentBuildError(distrusted)
    source_dir = source_dir if trust_code else trusted_source_dir(source_dir, run_dir=run_dir)
    try:
        built = make_single(env, source_dir=source_dir)
    except EnvironmentBuildError as error:
        if not trust_code:
            raise EnvironmentBuildError(_explained(error, env, RunFolder(run_dir))) from error
        return _unpickled(RunFolder(run_dir).vars_pkl, error, render_mode)
    if render_mode is None:
        return built
    built.close()
    built = make_single(env, source_dir=source_dir, render_mode=render_mode)
    _require_rendering(built, render_mode)
    return built


def _require_rendering(env: SingleEnv, render_mode: str) -> None:
    """Draw a first picture: missing packages and displays are noticed only then."""
    try:
        env.reset(seed=0)
        env.render()
    except Exception as error:  # each drawing library raises its own errors
        env.close()
        missing = isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled)
        hint = "; pip install 'remuda[video]' installs the packages for gymnasium's own environments" if missing else ""
        raise EnvironmentBuildError(
            f"{shown(env)} cannot be rendered here ({render_mode}): {type(error).__name__}: {error}{hint}"
        ) from error
    if render_mode == "human" and _is_unseen():
        env.close()
        display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        raise EnvironmentBuildError(f"{shown(env)} cannot be shown: no window can be opened on the display {display}")


def _is_unseen() -> bool:
    """Return True if the window is invisible: SDL silently draws to memory if it cannot open a display."""
    pygame: Any = sys.modules.get("pygame")
    if pygame is None or os.environ.get("SDL_VIDEODRIVER") in _UNSEEN or not pygame.display.get_init():
        return False
    return pygame.display.get_driver() in _UNSEEN


def _unpickled(path: Path, failure: EnvironmentBuildError, render_mode: str | None) -> SingleEnv:
    why = f"the run's environment cannot be built here: {failure}\nand its pickled copy cannot be used: "
    try:
        loaded = unpickle_environment(path)
    except Exception as error:  # a pickle may raise anything
        raise EnvironmentBuildError(f"{why}{path}: {type(error).__name__}: {error}") from error
    if not isinstance(loaded, gymnasium.Env):
        raise EnvironmentBuildError(f"{why}{path} holds {loaded!r}, which is not a gymnasium.Env")
    single = cast("SingleEnv", loaded)
    if render_mode is not None and single.render_mode != render_mode:
        raise EnvironmentBuildError(f"{why}it was made for render_mode {single.render_mode}, not {render_mode}")
    return single


def _explained(error: EnvironmentBuildError, env: EnvConfig, run: RunFolder) -> str:
    lines = [f"the run's environment cannot be built here: {error}"]
    if run.env_spec.is_file():
        lines.append(f"- Its description is in {run.env_spec}.")
    if env.make is not None:
        lines.append(
            "- If its module has moved, add its new folder to PYTHONPATH, or name it as source_dir in config.json."
        )
    if run.vars_pkl.is_file():
        lines.append(
            f"- A pickled copy is in {run.vars_pkl}: use it with --trust-code (in Python: trust_code=True). "
            "Unpickling runs any code in the file, so do it only if you trust the author of this folder."
        )
    lines.append("- In Python you can use your own: load_policy(run, env=...); load_action(run) needs no environment.")
    return "\n".join(lines)


TRUST = "use --trust-code (in Python: trust_code=True) if you trust its author"


def distrusted_environment(env: EnvConfig, *, source_dir: str | None, run_dir: Path) -> str | None:
    """Return the reason to ask for trust before this environment of a run is built; None without any."""
    reference = env.make if env.make is not None else env.id
    if env.kind == "pettingzoo" and env.make is None:
        reference = f"{env.id}:"  # the name of a module
    named = f"env.make = {env.make!r}" if env.make is not None else f"env.id = {env.id!r}"
    run = RunFolder(run_dir)
    files = (run.root, run.config_json, run.model, run.vars_pkl, run_dir / MODEL)
    return _distrusted(reference or "", named, files, source_dir=source_dir, run_dir=run_dir)


def distrusted_algorithm(config: ExperimentConfig, *, run_dir: Path, checkpoint: Path) -> str | None:
    """Return the reason to ask for trust before the algorithm of this checkpoint is imported; None without any."""
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
    """Return the reason to ask for trust before model.pt in this model/ folder is opened; None without any."""
    owner = _of_others(folder, folder / MODEL)
    if owner is None:
        return None
    return f"{owner}, and model.pt is a program (TorchScript) that may write files: play a checkpoint, or {TRUST}"


def distrusted_file(*paths: Path) -> str | None:
    """Return the reason to ask for trust before files that name an environment are opened; None without any."""
    owner = _of_others(*paths, *(path.parent for path in paths))
    return None if owner is None else f"{owner}, and names code to run, its environment: read that first, then {TRUST}"


def _of_others(*paths: Path) -> str | None:
    """Describe the first path that belongs to another user; None if no path does."""
    for path in paths:
        try:
            owner = path.stat().st_uid
        except OSError:
            continue  # it does not exist
        if owner != os.geteuid():
            return f"{path} belongs to another user (user id {owner}, yours is {os.geteuid()})"
    return None


def trusted_source_dir(source_dir: str | None, *, run_dir: Path) -> str | None:
    """Return the folder for imports of modules without asking; None if the folder is in the run folder."""
    inside = source_dir is not None and _is_within(Path(source_dir), run_dir.resolve())
    return None if inside else source_dir


def _lies_in(module: str, folders: Iterable[str], run_dir: Path) -> bool:
    """Return True if Python would find the module, or a package around it, in the run folder."""
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
