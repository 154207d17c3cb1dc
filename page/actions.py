"""Actions of operators: an action is a command, with the same checks and the same messages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from remuda.config.errors import ConfigError
from remuda.config.load import LoadedConfig, load_text
from remuda.coordinator.rights import MAY_SAY
from remuda.page.commands import BrokenOffError, CommandError, Commands, RequestedEvaluation
from remuda.page.coordinator_link import NoCoordinatorError
from remuda.page.process import PageRight
from remuda.page.run_ids import whole_run
from remuda.page.views import Views
from remuda.storage.notes import Notes, NotesError, valid_notes, write_notes
from remuda.wire.messages import AnyMessage, Prioritize, Priority, StopExperiment, Submit

_CHOICES = (
    (r" \(in Python: [^)]*\)", ""),
    (r" \(--on-exists rename\)", " (“rename”)"),
    (r"--on-exists rename", "“rename”"),
    (r"--resume\b", "“resume”"),
    (r"--force\b", "“force”"),
    (r"with --initialize-from", "by `remuda submit --initialize-from`"),
    (r"another (run )?folder( \(--run-dir\))?", "another name"),
)
_HINT = "; these are choices of “If its run folder exists” under Submit"
NAME = "config.yaml"
_PLACE = re.compile(rf"{re.escape(NAME)}(?::(\d+))?: (.*)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z_][\w.\[\]-]*): ")
LONGEST_BODY_BYTES = 256 << 10
NEEDS: Mapping[str, type[AnyMessage]] = {
    "submit": Submit,
    "stop": StopExperiment,
    "priority": Prioritize,
    "evaluate": Submit,
    "replay": Submit,
    "resume": Submit,
    "note": Submit,
}
"""Message that the user of an action must have the right to send, by action."""
_LOCAL = frozenset({"evaluate", "replay", "note"})
"""Actions without need of a coordinator."""
SUBMIT_S = 300.0
"""Most seconds of a submission, which builds the environment once."""
REPLAY_S = 600.0
"""Most seconds of a replay."""
_AT_ONCE = 2
"""Submissions; and replays."""
_REFUSED = 3
_WRONG_INPUT = 2
_Text = Annotated[str, Meta(max_length=200_000)]
_Short = Annotated[str, Meta(max_length=1_000)]
_Sets = Annotated[list[_Short], Meta(max_length=100)]


def on_page(text: str) -> str:
    """Replace options of the command line in a refusal by the choices of the page."""
    found = text
    for option, choice in _CHOICES:
        found = re.sub(option, choice, found)
    return found + _HINT if "“" in found and "“" not in text else found


class Problem(Struct, frozen=True):
    """A problem of a config."""

    line: int | None
    key: str | None
    """Dotted name of the setting with the problem."""
    message: str


class CheckResult(Struct, frozen=True):
    """Result of a check: a valid config can be submitted."""

    valid: bool
    name: str | None
    problems: list[Problem]


class ConfigProblemsError(Exception):
    """The config has problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("the config has problems")
        self.problems = list(problems)


def checked(text: str, sets: Sequence[str], folder: Path) -> CheckResult:
    """Check a config as YAML, with overriding settings; relative paths begin in `folder`."""
    try:
        loaded = valid(text, sets, folder)
    except ConfigProblemsError as error:
        return CheckResult(False, None, error.problems)
    return CheckResult(True, loaded.config.name, [])


def valid(text: str, sets: Sequence[str], folder: Path) -> LoadedConfig:
    """The config. Raises ConfigProblemsError."""
    try:
        loaded = load_text(text, folder=folder, overrides=sets, name=NAME, import_algorithm=False)
        loaded.require_numbers("the workers may be on other machines")
        return loaded
    except ConfigError as error:
        raise ConfigProblemsError([problem(each) for each in error.problems]) from error


def problem(text: str) -> Problem:
    """The parts of a line of a ConfigError."""
    place = _PLACE.fullmatch(text)
    if place is None:
        return Problem(None, None, text)
    key = _KEY.match(place[2])
    return Problem(None if place[1] is None else int(place[1]), None if key is None else key[1], place[2])


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/config/check."""

    text: _Text
    set: _Sets = []


class SubmitBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/submit."""

    text: _Text
    set: _Sets = []
    name: _Short | None = None
    priority: Priority = 0
    on_exists: Literal["error", "resume", "force", "rename"] = "error"


class StopBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/stop."""

    experiment: _Short
    now: bool = False


class PriorityBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/priority."""

    experiment: _Short
    priority: Priority


class ResumeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/resume."""

    run: _Short
    priority: Priority = 0
    set: _Sets = []


class EvaluateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/evaluate."""

    run: _Short
    train_iter: Annotated[int, Meta(ge=0)] | Literal["best", "last"] = "best"
    episodes: Annotated[int, Meta(ge=1, le=10_000)] = 20
    deterministic: bool = True


class ReplayBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/replay."""

    run: _Short
    episode: _Short | None = None
    """None: the list of all episodes."""


class NoteBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of /api/note."""

    run: _Short
    note: _Text
    tags: Annotated[list[_Short], Meta(max_length=100)]


class Submission(Struct, frozen=True):
    """The answer to a submission."""

    experiment: str
    run: str | None


class Accepted(Struct, frozen=True):
    """Answer to an accepted action."""


class BusyError(Exception):
    """Too much goes on at once."""


class RefusedByCommandError(Exception):
    """The command refused; the text is its last message."""


def allowed(right: PageRight) -> frozenset[str]:
    """Return the actions of a right."""
    return frozenset(name for name, message in NEEDS.items() if message in MAY_SAY[right])


class Actions:
    """Carries out actions. Thread-safe; needs `close`."""

    def __init__(self, views: Views, connection_file: Path | None) -> None:
        self._views = views
        self._connection_file = connection_file
        self._folder = Path.cwd()
        self._submissions, self._replays = (threading.BoundedSemaphore(_AT_ONCE) for _ in range(2))
        self._commands = Commands()

    def close(self) -> None:
        """Break off submissions and evaluations, and refuse new ones. May be called again."""
        self._commands.close()
        self._views.evaluations.close()

    def names(self, right: PageRight) -> list[str]:
        """Return the actions available here to a user with this right."""
        there = _LOCAL if self._connection_file is None else frozenset(NEEDS)
        return [name for name in NEEDS if name in allowed(right) & there]

    def check(self, body: Check) -> CheckResult:
        """Check a config as typed."""
        return checked(body.text, body.set, self._folder)

    def submit(self, body: SubmitBody) -> Submission:
        """Raises ConfigProblemsError, RefusedByCommandError, NoCoordinatorError, BusyError, BrokenOffError."""
        loaded = valid(body.text, body.set, self._folder)
        options = [f"--priority={body.priority}", f"--on-exists={body.on_exists}"]
        options += [] if body.name is None else [f"--name={body.name}"]
        with tempfile.TemporaryDirectory(prefix="remuda-page-") as folder:
            config = Path(folder) / NAME
            config.write_text(body.text, encoding="utf-8")
            # relative paths begin in the folder of the page, not in the temporary folder
            return self._submitted(config, [*body.set, f"source_dir={json.dumps(loaded.config.source_dir)}"], options)

    def resume(self, body: ResumeBody) -> Submission:
        """Raises as `submit`, and UnknownRunError."""
        folder = self._views.ids.folder(body.run)
        options = [f"--priority={body.priority}", "--resume", f"--run-dir={folder.root}"]
        return self._submitted(folder.config_json, body.set, options)

    def stop(self, body: StopBody) -> Accepted:
        """Raises RefusedError, NoCoordinatorError."""
        self._views.link.do(lambda client: client.stop(body.experiment, now=body.now))
        return Accepted()

    def prioritize(self, body: PriorityBody) -> Accepted:
        """Raises RefusedError, NoCoordinatorError."""
        self._views.link.do(lambda client: client.prioritize(body.experiment, body.priority))
        return Accepted()

    def evaluate(self, body: EvaluateBody) -> RequestedEvaluation:
        """Begin to play a policy. Raises UnknownRunError, BusyError."""
        folder = self._views.ids.folder(body.run)
        which = "-1" if body.train_iter == "last" else str(body.train_iter)
        options = [f"--episodes={body.episodes}", f"--iteration={which}", "--no-render", "--json"]
        options += ["--deterministic"] if body.deterministic else []
        found = self._views.evaluations.begin(
            body.run,
            body.train_iter,
            body.episodes,
            body.deterministic,
            command("evaluate", str(folder.root), *options),
        )
        if found is None:
            raise BusyError("too many evaluations are running: wait for the end of one")
        return found

    def replay(self, body: ReplayBody) -> Generator[bytes]:
        """Play an episode again, or list the episodes: lines as of `page.replaying`. Raises UnknownRunError."""
        folder = self._views.ids.folder(whole_run(body.run))
        which = [] if body.episode is None else [f"--episode={body.episode}"]
        return self._replayed(program("remuda.page.replaying", str(folder.root), *which))

    def _replayed(self, command: Sequence[str]) -> Generator[bytes]:
        if not self._replays.acquire(blocking=False):
            yield _failed("too many replays are running: try again in a moment")
            return
        try:
            yield from self._commands.follow(command, within_s=REPLAY_S)
        except (CommandError, OSError) as error:
            yield _failed(str(error))
        finally:
            self._replays.release()

    def note(self, body: NoteBody) -> Notes:
        """Replace the notes of a run and return them. Raises NotesError, UnknownRunError."""
        folder, notes = self._views.ids.folder(whole_run(body.run)), valid_notes(body.note, body.tags)
        try:
            write_notes(folder, notes)
        except OSError as error:
            raise NotesError(f"{folder.notes.name} cannot be written: {error.strerror}") from error
        return notes

    def _submitted(self, config: Path, sets: Sequence[str], options: Sequence[str]) -> Submission:
        if self._connection_file is None:
            raise NoCoordinatorError("this page shows stored runs and has no coordinator")
        if not self._submissions.acquire(blocking=False):
            raise BusyError("too many submissions are running: try again in a moment")
        try:
            where = [f"--connection-file={self._connection_file}", f"--runs-dir={self._views.ids.runs_dir}"]
            sets_ = [f"--set={one}" for one in sets]
            ended = self._commands.run(
                command("submit", str(config), *where, *options, *sets_), folder=self._folder, within_s=SUBMIT_S
            )
        except BrokenOffError as error:
            text = (
                "the page ended during the submission: if `remuda status` does not list the experiment, submit it again"
            )
            raise BrokenOffError(text) from error
        except CommandError as error:
            raise RefusedByCommandError(str(error)) from error
        finally:
            self._submissions.release()
        return self._outcome(ended, config)

    def _outcome(self, ended: subprocess.CompletedProcess[str], config: Path) -> Submission:
        said = ended.stderr.strip().replace(str(config), NAME)
        if ended.returncode == 0:
            folder = re.search(r"^run folder: (.*)$", said, re.MULTILINE)
            return Submission(ended.stdout.strip(), None if folder is None else self._views.ids.id_of(folder[1]))
        lines = said.splitlines() or [f"the command ended with {ended.returncode}"]
        if ended.returncode == _WRONG_INPUT and all(line.startswith(f"{NAME}:") for line in lines):
            raise ConfigProblemsError([problem(line) for line in lines])
        if ended.returncode in (_WRONG_INPUT, _REFUSED):
            raise RefusedByCommandError(on_page(lines[-1]))
        raise NoCoordinatorError(lines[-1])


def command(*arguments: str) -> list[str]:
    """Return a command of Remuda for a separate process, which keeps the code of a config or an environment out of the
    page."""
    return program("remuda.cli", *arguments)


def program(module: str, *arguments: str) -> list[str]:
    """Return a command that runs a module."""
    return [sys.executable, "-P", "-m", module, *arguments]


def _failed(text: str) -> bytes:
    """Return the last line of a replay."""
    return json.dumps({"error": text}).encode() + b"\n"
