"""The interface of launchers, which start the processes of a run: on this machine, or through an engine elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, cast

from remuda.config.errors import Error, NoExit
from remuda.config.launching import ENGINES, LOCAL, LaunchConfig
from remuda.config.user_code import UserCodeError, offered, user_object

if TYPE_CHECKING:  # the second imports gymnasium
    from remuda.deploy.nanny_process import NannyProcess
    from remuda.deploy.sizing import SizeRequest

GROUP = "remuda.launchers"
"""The entry point group in which installed packages offer launchers."""
SETTING = "launch.on"


@dataclass(frozen=True)
class WorkerCounts:
    """How many workers of each role to start."""

    collectors: int
    evaluators: int
    learners: int = 1
    reanalyzers: int = 0


@dataclass(frozen=True)
class LaunchRequest:
    """What a launcher is made for. Fields of later versions have defaults."""

    runs_dir: Path
    """The folder, absolute, that the coordinator keeps its own files in."""
    name: str = "run"
    """The experiment's name, for the names of jobs: letters, digits, dots, dashes and underscores."""
    settings: LaunchConfig = field(default_factory=LaunchConfig)
    """The section `launch` of the config, with the settings of each engine."""
    limits: Sequence[str] = ()
    """What the coordinator's `--limit` takes."""
    profile: Path | None = None
    """The folder that the coordinator and every worker write a profile to; None for no profiles."""
    say: Callable[[str], None] = lambda text: None
    """Shows a line to the user while the run goes on, such as why a job waits. Must not raise."""
    sizes: SizeRequest | None = None
    """Only if all processes are on this machine (`launch.on: local`): what to measure before the workers start. It says
    how many collectors there are, in place of WorkerCounts; see remuda.deploy.sizing."""
    nanny: NannyProcess | None = None
    """Only for `launch.on: local`, and only where it was started before the launcher could be made. Whoever has started
    it ends it, where the launcher has not done so before."""


class LaunchError(Error):
    """The coordinator or its workers could not be started, or died; the message holds their last lines of output."""


class Launcher(Protocol):
    """Starts a coordinator and workers, and ends both whatever happens."""

    @property
    def connection_file(self) -> Path:
        """The coordinator's connection file."""
        ...

    def planned(self, workers: WorkerCounts) -> str:
        """What `start` would run or submit, as text: commands, scripts, manifests. Starts and writes nothing, and holds
        no secret. Raises LaunchError if it could not be submitted."""
        ...

    def start(self, workers: WorkerCounts, *, given_up: Callable[[], bool]) -> None:
        """Start everything; returns once the coordinator can be reached, however long an engine's queue is.

        Args:
            workers: how many of each role.
            given_up: whether the user does not want to wait any longer; to be called about every second.

        Raises:
            LaunchError: something could not be started, or the user has given up.
        """
        ...

    def check(self) -> None:
        """Look after what was started, and raise LaunchError if the run cannot go on. Called several times per second
        while the run goes on; an engine is asked less often."""
        ...

    def wait_for_coordinator(self, deadline_s: float) -> bool:
        """Wait until the coordinator has ended by itself (after a shutdown); False when the deadline passes first."""
        ...

    def kill(self) -> None:
        """End everything at once, just before the calling process ends."""
        ...

    def stop(self) -> None:
        """End everything that was started and wait until it is gone. Safe to call twice."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class LauncherClass(Protocol):
    """Makes a launcher; nothing is started yet."""

    def __call__(self, request: LaunchRequest) -> Launcher:
        """Make it. Whatever it raises is told to the user."""
        ...


def find_launcher(on: str, *, source_dir: str | None) -> LauncherClass:
    """Return the launcher class of this name; a module of the user is imported, from `source_dir`.

    Args:
        on: `local`, the name of an engine, `module:Class`, or the name of an entry point.
        source_dir: the folder of the config file.

    Raises:
        UserCodeError: no launcher has this name.
    """
    own = _own_class(on)
    if own is not None:
        return cast("LauncherClass", user_object(own, setting=SETTING, source_dir=None, kind="class"))
    names = {} if ":" in on else offered(GROUP)
    if ":" not in on and on not in names:
        known = ", ".join([LOCAL, *ENGINES, *names])
        raise UserCodeError(SETTING, f"{SETTING}: should be one of {known}, or module:Class, not {on}")
    found = user_object(names.get(on, on), setting=SETTING, source_dir=source_dir, kind="class")
    return cast("LauncherClass", found)


def _own_class(on: str) -> str | None:
    """Return `module:Class` of one of Remuda's own launchers, whose module is imported only when it is used."""
    if on == LOCAL:
        return "remuda.deploy.local:LocalLauncher"
    return f"remuda.deploy.{on}.launcher:{on.capitalize()}Launcher" if on in ENGINES else None


def make_launcher(request: LaunchRequest, *, source_dir: str | None) -> Launcher:
    """Make the launcher that the settings name; see find_launcher. Raises UserCodeError, and LaunchError where one of
    Remuda's own cannot be used here."""
    on = request.settings.on
    kind = find_launcher(on, source_dir=source_dir)
    if _own_class(on) is not None:
        return kind(request)
    try:
        with NoExit():
            return kind(request)
    except Exception as error:  # whatever the user's class raises
        raise UserCodeError(SETTING, f"{SETTING} {on}: cannot be made: {type(error).__name__}: {error}") from error
