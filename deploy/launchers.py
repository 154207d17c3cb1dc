"""The launcher that `launch.on` names: Remuda's, one of the user's own, or one that an installed package brings."""

from __future__ import annotations

from typing import Protocol, cast

from remuda.config.errors import NoExit
from remuda.config.launching import KUBERNETES, LOCAL
from remuda.config.user_code import UserCodeError, offered, user_object
from remuda.deploy.launcher import Launcher, LaunchRequest

BUILT_IN = {
    LOCAL: "remuda.deploy.local:LocalLauncher",
    "ray": "remuda.deploy.ray.launcher:RayLauncher",
    "slurm": "remuda.deploy.slurm.launcher:SlurmLauncher",
    KUBERNETES: "remuda.deploy.kubernetes.launcher:KubernetesLauncher",
}
"""Remuda's own launchers, by name; a module is imported when its launcher is used."""
GROUP = "remuda.launchers"
"""The entry point group in which installed packages offer launchers."""
SETTING = "launch.on"


class LauncherClass(Protocol):
    """Makes a launcher; nothing is started yet."""

    def __call__(self, request: LaunchRequest) -> Launcher:
        """Make it. Whatever it raises is told to the user."""
        ...


def find_launcher(on: str, *, source_dir: str | None) -> LauncherClass:
    """Look a launcher's class up; one of the user's is imported, from `source_dir`.

    Args:
        on: the name of one of Remuda's own, `module:Class`, or the name of an entry point.
        source_dir: the folder of the config file.

    Raises:
        UserCodeError: there is none of this name.
    """
    if on in BUILT_IN:
        return cast("LauncherClass", user_object(BUILT_IN[on], setting=SETTING, source_dir=None, kind="class"))
    names = {} if ":" in on else offered(GROUP)
    if ":" not in on and on not in names:
        raise UserCodeError(
            SETTING, f"{SETTING}: should be one of {', '.join([*BUILT_IN, *names])}, or module:Class, not {on}"
        )
    found = user_object(names.get(on, on), setting=SETTING, source_dir=source_dir, kind="class")
    return cast("LauncherClass", found)


def make_launcher(request: LaunchRequest, *, source_dir: str | None) -> Launcher:
    """Make the launcher that the settings name; see find_launcher. Raises UserCodeError, and LaunchError where one of
    Remuda's own cannot be used here."""
    on = request.settings.on
    kind = find_launcher(on, source_dir=source_dir)
    if on in BUILT_IN:
        return kind(request)
    try:
        with NoExit():
            return kind(request)
    except Exception as error:  # whatever the user's class raises
        raise UserCodeError(SETTING, f"{SETTING} {on}: cannot be made: {type(error).__name__}: {error}") from error
