"""Options shared by several commands, and checks of their combinations."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from remuda.cli.errors import InputError
from remuda.storage.existing_folder import OnExists

if TYPE_CHECKING:
    from remuda.client.beginning import ResolvedRun
    from remuda.config.load import LoadedConfig
    from remuda.coordinator.settings import Limits
    from remuda.storage.bucket.shipping import Shipping

ConfigPath = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A .yaml or .json file, or a config in the folder of an earlier run.")
]
ConfigOrAlgorithm = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        help="A .yaml or .json file, or a config in the folder of an earlier run; with --env an algorithm (ppo), or "
        "auto for the recommended one; with --resume and --run-dir it may be left out: the run's own config is taken.",
    ),
]
Env = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="ID",
        help="An environment, an id or your own module:function, for the algorithm that is named in place of CONFIG: "
        "takes settings that are stored for both, else sensible ones.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: learner.batch_size=128; repeatable."),
]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="Short for --set name=NAME.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Short for --set seed=N.")]
Device = Annotated[str | None, typer.Option(help="Short for --set learner.device=…: cpu, cuda, cuda:1.")]
RunDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The run folder itself, or its address in a bucket: s3://bucket/runs/first."),
]
RunId = Annotated[str | None, typer.Option(metavar="ID", help="Run folder inside --runs-dir (default: the name).")]


def on_disk(folder: Path) -> Path:
    """Return a folder of this machine: the folder itself, or the folder that stands for an address. Raises
    BucketError."""
    from remuda.storage.bucket.address import address_of, local_folder

    address = address_of(folder)
    return folder if address is None else local_folder(address)


_RUNS_DIR_HELP = "The folder of all run folders, or its address in a bucket: s3://bucket/runs."
RunsDirOrAddress = Annotated[Path, typer.Option(metavar="DIR", envvar="REMUDA_RUNS_DIR", help=_RUNS_DIR_HELP)]
RunsDir = Annotated[Path, typer.Option(metavar="DIR", envvar="REMUDA_RUNS_DIR", help=_RUNS_DIR_HELP, callback=on_disk)]
OnExistsOption = Annotated[
    OnExists | None, typer.Option(help="What to do with a run folder that is already there (default: error).")
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Short for --on-exists resume: continue the run, without CONFIG with exactly its own settings."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Short for --on-exists force: start over.")]
InitializeFrom = Annotated[
    Path | None,
    typer.Option(metavar="RUN_OR_FILE", help="Start from the weights of a checkpoint (of a run: its best)."),
]
Offline = Annotated[
    Path | None,
    typer.Option(metavar="DATASET", help="Learn from a Minari dataset alone: a folder of `remuda dataset export`."),
]
Inference = Annotated[
    bool,
    typer.Option(
        "--inference", help="No learning: a trained policy (--initialize-from or --resume) acts and is evaluated."
    ),
]
Profile = Annotated[
    bool, typer.Option("--profile", help="Profile each process, into log/profile/ (costs about 1 % of the time).")
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=SECONDS",
        help="A time limit for workers: beat_interval_s, lost_after_s, stuck_after_s or hopeless_after_s; repeatable.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

DEFAULT_RUNS_DIR = Path("runs")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Values of the options of all commands that start a run."""

    config: ConfigOrAlgorithm = None
    env: Env = None
    sets: Sets = None
    seed: Seed = None
    device: Device = None
    run_dir: RunDir = None
    run_id: RunId = None
    runs_dir: RunsDirOrAddress = DEFAULT_RUNS_DIR
    on_exists: OnExistsOption = None
    resume: Resume = False
    force: Force = False
    initialize_from: InitializeFrom = None
    inference: Inference = False
    offline: Offline = None

    def resolved(self, *more_sets: str, opens: bool = True, launches: bool = False) -> ResolvedRun:
        """Combine the options; `more_sets` are further settings like --set, and override --set. Unless `opens`, a run
        in a bucket is not opened, and nothing is restored. `launches`: launch.on starts the processes of the run.

        Raises InputError for contradicting options, ConfigError, UnusableError, and BucketError.
        """
        import json

        from remuda.client.beginning import ResolvedRun, with_former_settings

        choice = resolve_on_exists(self.on_exists, resume=self.resume, force=self.force)
        beginning = resolve_beginning(self.initialize_from, inference=self.inference, resume=choice == "resume")
        if self.offline is not None:
            beginning = [*beginning, f"collector.dataset={json.dumps(os.path.abspath(self.offline))}"]
        sets = [*(self.sets or ()), *more_sets, *beginning]
        config, bucket = self.config, None
        if config is None:
            config, bucket = self._own_config(choice, _launcher_in(sets) if launches else None, opens=opens)
        if self.env is None:
            loaded = load(config, sets=sets, seed=self.seed, device=self.device)
        else:
            loaded = choose(str(config), self.env, sets=sets, seed=self.seed, device=self.device)
        folder = resolve_run_dir(self.run_dir, self.run_id, runs_dir=self.runs_dir, name=loaded.config.name)
        if bucket is None:
            bucket = _opened(folder, choice, loaded.config.launch.on if launches else None, opens=opens)
        if bucket is not None:
            folder, choice = bucket.folder, bucket.on_exists
        if choice == "resume":
            loaded = with_former_settings(loaded, folder)
        return ResolvedRun(loaded, folder, choice, bucket)

    def _own_config(self, choice: OnExists, launch_on: str | None, *, opens: bool) -> tuple[Path, Shipping | None]:
        """Return the config of the continued run, and its bucket. Raises InputError if the options name no run,
        UnusableError, and BucketError."""
        from remuda.storage.run_folder import RunFolder

        if self.env is not None:
            raise InputError(f"--env {self.env}: name an algorithm before it, as in: ppo --env {self.env}")
        if choice != "resume" or (self.run_dir is None and self.run_id is None):
            raise InputError("name a CONFIG, or continue a run with its own settings: --resume --run-dir RUN")
        folder = resolve_run_dir(self.run_dir, self.run_id, runs_dir=self.runs_dir, name="")
        bucket = _opened(folder, choice, launch_on, opens=opens)
        config = RunFolder(folder if bucket is None else bucket.folder).config_json
        if not config.is_file():
            raise InputError(
                f"--resume: {folder} is not a run folder: it has no {config.name}. Name a CONFIG, or another RUN"
            )
        return config, bucket


def with_options(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that prepares a command for typer. The command's first parameter, a dataclass of options,
    becomes a parameter per field: the first field, then the command's own parameters, then the remaining fields."""
    types = get_type_hints(kind, include_extras=True)
    first, *others = (
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for field in fields(kind)
    )

    def converted(verb: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in list(signature(verb, eval_str=True).parameters.values())[1:]
        ]

        @wraps(verb)
        def flat(**given: Any) -> None:
            options = kind(**{parameter.name: given.pop(parameter.name) for parameter in (first, *others)})
            verb(options, **given)

        cast("Any", flat).__signature__ = Signature([first, *own, *others])
        return flat

    return converted


with_run_options = with_options(RunOptions)


def named(name: str | None) -> list[str]:
    """The setting of --name."""
    import json

    return [] if name is None else [f"name={json.dumps(name)}"]


def new_group(help_text: str, *, example: str) -> typer.Typer:
    """Make a group of commands: plain help, also shown without arguments, and Python's own tracebacks."""
    return typer.Typer(
        help=help_text,
        epilog=epilog(example),
        no_args_is_help=True,
        rich_markup_mode=None,  # importing rich takes longer than the rest of --help
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def epilog(example: str) -> str:
    """Return the end of a command's --help: an example on a separate line, never wrapped."""
    return f"\b\nExample:\n  {example}"


def load(config: Path, *, sets: list[str] | None, seed: int | None, device: str | None = None) -> LoadedConfig:
    """Load `config` and apply the shared options. Raises ConfigError."""
    from remuda.config.load import load_config

    return load_config(config, overrides=_overrides(sets, device), seed=seed)


def choose(
    algorithm: str, env_id: str, *, sets: list[str] | None, seed: int | None, device: str | None = None
) -> LoadedConfig:
    """Return stored or sensible settings for an algorithm in an environment; print the choice on standard error.

    Raises ConfigError, and InputError if the environment cannot be built.
    """
    from remuda.cli.output import reserved_stdout
    from remuda.client import beginning
    from remuda.config.readers import parse_override
    from remuda.environments.errors import EnvironmentBuildError, UnsupportedSpaceError

    given = [parse_override(text) for text in _overrides(sets, device)]
    try:
        with reserved_stdout():  # the environment may be built
            choice = beginning.choose(algorithm, env_id, overrides=given, seed=seed, folder=Path.cwd())
    except (EnvironmentBuildError, UnsupportedSpaceError) as error:
        raise InputError(f"--env: {error}") from error
    print(choice.summary, file=sys.stderr)
    return choice.loaded


def _overrides(sets: list[str] | None, device: str | None) -> list[str]:
    import json

    return [*(sets or ()), *([] if device is None else [f"learner.device={json.dumps(device)}"])]


def resolve_beginning(initialize_from: Path | None, *, inference: bool, resume: bool) -> list[str]:
    """The settings for the initial weights of a run. Raises InputError."""
    import json

    if initialize_from is not None and resume:
        raise InputError("give only one of --resume (continue) and --initialize-from (a new run with old weights)")
    if inference and not resume and initialize_from is None:
        raise InputError("--inference needs a trained policy: add --initialize-from RUN_OR_FILE, or --resume")
    settings = ["learner.inference=true"] if inference else []
    if initialize_from is None:
        return settings
    weights = _weights_file(initialize_from)
    return [*settings, f"learner.initialize_from={json.dumps(os.path.abspath(weights))}"]


def _weights_file(source: Path) -> Path:
    from remuda.policy.files.checkpoint_file import CheckpointError
    from remuda.policy.files.playable import find_checkpoint
    from remuda.storage.checkpoint_index import CheckpointIndexError

    try:
        weights = find_checkpoint(source, "best") if source.is_dir() else source
    except (CheckpointError, CheckpointIndexError) as error:
        raise InputError(f"--initialize-from: {error}") from error
    if not weights.is_file():
        raise InputError(f"--initialize-from: {source} is neither a run folder nor a checkpoint file")
    return weights.resolve()


def resolve_run_dir(run_dir: Path | None, run_id: str | None, *, runs_dir: Path, name: str) -> Path:
    """The run folder's absolute path, or its address in a bucket; `name` is the run's. Raises InputError."""
    if run_dir is not None and run_id is not None:
        raise InputError("give only one of --run-dir (the run folder itself) and --run-id (a name inside --runs-dir)")
    if run_id is not None and (run_id in ("", ".", "..") or "/" in run_id or "\0" in run_id):
        raise InputError(f"--run-id {run_id!r}: an id is the name of a folder, not a path; for a path use --run-dir")
    from remuda.storage.bucket.address import address_of

    given = run_dir or runs_dir / (run_id or name)
    return given if address_of(given) else Path(os.path.abspath(given))


def _launcher_in(sets: Sequence[str]) -> str | None:
    """Return the launcher that settings name."""
    from remuda.config.readers import parse_override

    named = [str(one.value) for one in map(parse_override, sets) if one.loc == ("launch", "on")]
    return named[-1] if named else None


def _opened(folder: Path, on_exists: OnExists, launch_on: str | None, *, opens: bool) -> Shipping | None:
    """Open the run's bucket, if the run has one. Raises UnusableError if the launcher starts processes elsewhere, and
    BucketError."""
    from remuda.storage.bucket.address import address_of_folder
    from remuda.storage.bucket.shipping import open_bucket

    if launch_on is not None:
        from remuda.client.checking import check_address

        check_address(address_of_folder(folder), launch_on)
    return open_bucket(folder, on_exists, lambda text: print(text, file=sys.stderr, flush=True)) if opens else None


def resolve_on_exists(on_exists: OnExists | None, *, resume: bool, force: bool) -> OnExists:
    """Combine three options into one choice. Raises InputError for a contradiction."""
    wishes: set[OnExists] = {on_exists} if on_exists else set()
    wishes |= {"resume"} if resume else set()
    wishes |= {"force"} if force else set()
    if len(wishes) > 1:
        raise InputError(
            f"give only one of --resume, --force and --on-exists: they ask for {' and '.join(sorted(wishes))}"
        )
    return wishes.pop() if wishes else "error"


def parse_limits(given: Sequence[str]) -> Limits:
    """Parse `--limit`. Raises InputError."""
    from remuda.coordinator.settings import Limits

    try:
        return Limits.of(given)
    except ValueError as error:
        raise InputError(f"--limit {error}") from error


def print_changes(resolved: ResolvedRun) -> None:
    """Print changed settings on standard error, if any. The log of the run also has these changes."""
    from remuda.config.dump import changed_settings, changes_sentence

    changed = changed_settings(resolved.run_dir, resolved.loaded.config) if resolved.on_exists == "resume" else []
    if changed:
        print(changes_sentence(changed), file=sys.stderr)


def print_unused(resolved: ResolvedRun) -> None:
    """Print a line on standard error per given setting without effect."""
    from remuda.config.explain import unused_settings

    for line in unused_settings(resolved.loaded.config):
        print(f"warning: {line}", file=sys.stderr)
