"""The interface of launchers: starting the processes of a run on this machine, or elsewhere through an engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
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
"""Entry point group for launchers of installed packages."""
SETTING = "launch.on"


@dataclass(frozen=True)
class WorkerCounts:
    """Number of workers to start per role."""

    collectors: int
    evaluators: int
    learners: int = 1
    """One for each policy of the run."""
    reanalyzers: int = 0
    inference: int = 0
    """Inference workers."""

    @property
    def of_roles(self) -> Mapping[str, int]:
        """Number of workers by role, without learners."""
        return {
            "collector": self.collectors,
            "evaluator": self.evaluators,
            "reanalyzer": self.reanalyzers,
            "inference": self.inference,
        }


@dataclass(frozen=True)
class LaunchRequest:
    """Arguments for a launcher. Fields of later versions have defaults."""

    runs_dir: Path
    """The coordinator's folder, absolute."""
    name: str = "run"
    """The experiment's name, for the names of jobs: letters, digits, dots, dashes and underscores."""
    settings: LaunchConfig = field(default_factory=LaunchConfig)
    """The section `launch` of the config, with the settings of each engine."""
    limits: Sequence[str] = ()
    """Arguments for the coordinator's `--limit`."""
    profile: Path | None = None
    """Folder for a profile of the coordinator and of every worker; None for no profiles."""
    say: Callable[[str], None] = lambda text: None
    """Shows a line to the user during the run, for example the reason of a job's wait. Must not raise."""
    sizes: SizeRequest | None = None
    """Measurement before the start of workers; only for processes on this machine (`launch.on: local`). The measured
    number of collectors replaces the number in WorkerCounts; see remuda.deploy.sizing."""
    nanny: NannyProcess | None = None
    """A nanny started before the launcher, only for `launch.on: local`. The nanny's starter ends a nanny left by the
    launcher."""


class LaunchError(Error):
    """Coordinator or workers could not be started, or died; the message holds their last lines of output."""


class Launcher(Protocol):
    """Starts a coordinator and workers, and ends both whatever happens."""

    @property
    def connection_file(self) -> Path:
        """The coordinator's connection file."""
        ...

    def planned(self, workers: WorkerCounts) -> str:
        """Return the commands, scripts or manifests of `start` as text. Starts and writes nothing, and holds no secret.
        Raises LaunchError for an impossible launch."""
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
        """End all started processes and wait for them. Safe to call twice."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def entered(launcher: Launcher) -> Generator[None]:
    """Context of a launcher. An error of the launcher's stop becomes a note of an earlier error of the body."""
    first: Exception | None = None
    try:
        with launcher:
            try:
                yield
            except Exception as error:
                first = error
                raise
    except Exception as error:
        if first is None or error is first:
            raise
        first.add_note(f"then the launcher could not be stopped: {type(error).__name__}: {error}")
    if first is not None:
        raise first


_PARTS = [name for name in vars(Launcher) if name in ("__enter__", "__exit__") or not name.startswith("_")]
"""Names of all parts of a Launcher. Some parts are first used at the end of a run."""


class LauncherClass(Protocol):
    """Makes a launcher; nothing is started yet."""

    def __call__(self, request: LaunchRequest) -> Launcher:
        """Make a launcher. Any exception is shown to the user."""
        ...


def find_launcher(on: str, *, source_dir: str | None) -> LauncherClass:
    """Return the launcher class named by `local`, an engine, `module:Class` or an entry point; a module of the user is
    imported, from `source_dir`. Raises UserCodeError if no launcher has this name."""
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
    """Return `module:Class` of one of Remuda's own launchers; the module is imported only on use."""
    if on == LOCAL:
        return "remuda.deploy.local:LocalLauncher"
    return ENGINES[on].launcher if on in ENGINES else None


def make_launcher(request: LaunchRequest, *, source_dir: str | None) -> Launcher:
    """Make the launcher of the settings; see find_launcher. Raises UserCodeError, and LaunchError for an own launcher
    that cannot be used here."""
    on = request.settings.on
    kind = find_launcher(on, source_dir=source_dir)
    if _own_class(on) is not None:
        return kind(request)
    try:
        with NoExit():
            launcher = kind(request)
    except Exception as error:  # whatever the user's class raises
        raise UserCodeError(SETTING, f"{SETTING} {on}: cannot be made: {type(error).__name__}: {error}") from error
    missing = [part for part in _PARTS if not _has(launcher, part)]
    if missing:
        raise UserCodeError(
            SETTING,
            f"{SETTING} {on}: lacks {', '.join(missing)}; remuda.deploy.launcher.Launcher describes all parts",
        )
    return launcher


def _has(launcher: Launcher, part: str) -> bool:
    """True for a launcher with this part. Runs no property of the class, which may need a started launcher."""
    return inspect.getattr_static(launcher, part, None) is not None or hasattr(launcher, part)
