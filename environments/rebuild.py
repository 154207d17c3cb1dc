"""Build the environment of a finished or copied run again, and fallbacks where it cannot be built."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

import gymnasium

from remuda.config.schema import EnvConfig
from remuda.environments.errors import EnvironmentBuildError
from remuda.environments.make import SingleEnv, make_single, shown
from remuda.environments.trust import distrusted_environment, trusted_source_dir
from remuda.storage.env_files import unpickle_environment
from remuda.storage.run_folder import RunFolder

_UNSEEN = ("dummy", "offscreen")
"""Where SDL draws when nobody can look."""


def rebuild(
    env: EnvConfig,
    *,
    source_dir: str | None,
    run_dir: Path,
    render_mode: str | None = None,
    trust_code: bool = False,
) -> SingleEnv:
    """Build one environment as the run's config says; with `trust_code`, where that fails, take that of vars.pkl.

    What others may have put there (see trust.py) is built with `trust_code` alone. With a `render_mode` it is seen to
    that it renders. Raises EnvironmentBuildError, which says what was tried and what else there is.
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
    """Missing packages and displays only show when the first picture is drawn."""
    try:
        env.reset(seed=0)
        env.render()
    except Exception as error:  # whatever library draws raises its own
        env.close()
        missing = isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled)
        hint = "; pip install 'remuda[video]' brings what gymnasium's own draw with" if missing else ""
        raise EnvironmentBuildError(
            f"{shown(env)} cannot be rendered here ({render_mode}): {type(error).__name__}: {error}{hint}"
        ) from error
    if render_mode == "human" and _is_unseen():
        env.close()
        display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        raise EnvironmentBuildError(f"{shown(env)} cannot be shown: no window can be opened on the display {display}")


def _is_unseen() -> bool:
    """Whether the window just drawn is one that SDL made up: what it does, silently, on a display it cannot open."""
    pygame: Any = sys.modules.get("pygame")
    if pygame is None or os.environ.get("SDL_VIDEODRIVER") in _UNSEEN or not pygame.display.get_init():
        return False
    return pygame.display.get_driver() in _UNSEEN


def _unpickled(path: Path, failure: EnvironmentBuildError, render_mode: str | None) -> SingleEnv:
    why = f"the run's environment cannot be built here: {failure}\nand its pickled copy is of no use: "
    try:
        loaded = unpickle_environment(path)
    except Exception as error:  # whatever a pickle raises
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
        lines.append(f"- What it was is in {run.env_spec}.")
    if env.make is not None:
        lines.append(
            "- If its module lies elsewhere now, name that folder in PYTHONPATH or as source_dir in config.json."
        )
    if run.vars_pkl.is_file():
        lines.append(
            f"- A pickled copy is in {run.vars_pkl}: --trust-code (in Python: trust_code=True) takes it. "
            "Unpickling runs whatever the file says, so do it only if you trust whoever made this folder."
        )
    lines.append("- In Python you can bring your own: load_policy(run, env=...), or load_action(run) without any.")
    return "\n".join(lines)
