"""The launcher that `--on` names: this machine's, one of the user's own, or one that an installed package brings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from remuda.config.exits import NoExit
from remuda.config.user_code import UserCodeError, offered, user_object
from remuda.deploy.launcher import Launcher
from remuda.deploy.local import LocalLauncher

LOCAL = "local"
GROUP = "remuda.launchers"
"""The entry point group in which installed packages offer launchers."""
SETTING = "--on"


class LauncherClass(Protocol):
    """Makes a launcher; nothing is started yet."""

    def __call__(self, runs_dir: Path, *, limits: Sequence[str], profile: Path | None) -> Launcher:
        """Make it.

        Args:
            runs_dir: the folder that the coordinator keeps run folders and its own files in.
            limits: what the coordinator's `--limit` takes.
            profile: the folder that the coordinator and every worker write a profile to; None for no profiles.
        """
        ...


def find_launcher(on: str, *, source_dir: str | None) -> LauncherClass:
    """Look a launcher's class up; one of the user's is imported, from `source_dir`.

    Args:
        on: `local`, `module:Class`, or the name of an entry point.
        source_dir: the folder of the config file.

    Raises:
        UserCodeError: there is none of this name.
    """
    if on == LOCAL:
        return LocalLauncher
    names = {} if ":" in on else offered(GROUP)
    if ":" not in on and on not in names:
        raise UserCodeError(
            SETTING, f"{SETTING}: should be one of {', '.join([LOCAL, *names])}, or module:Class, not {on}"
        )
    found = user_object(names.get(on, on), setting=SETTING, source_dir=source_dir, kind="class")
    return cast("LauncherClass", found)


def make_launcher(
    on: str, runs_dir: Path, *, source_dir: str | None, limits: Sequence[str] = (), profile: Path | None = None
) -> Launcher:
    """Make a launcher; see find_launcher. Raises UserCodeError."""
    kind = find_launcher(on, source_dir=source_dir)
    try:
        with NoExit():
            return kind(runs_dir, limits=limits, profile=profile)
    except Exception as error:  # whatever the user's class raises
        if on == LOCAL:
            raise
        raise UserCodeError(SETTING, f"{SETTING} {on}: cannot be made: {type(error).__name__}: {error}") from error
