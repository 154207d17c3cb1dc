"""Options of `remuda evaluate`, and the policies that they choose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.errors import InputError
from remuda.cli.options import AsJson
from remuda.storage.bucket.address import address_of
from remuda.storage.run_folder import folder_of_policy, is_model, is_onnx

if TYPE_CHECKING:  # they import torch, which wrong options do not need
    from remuda.config.schema import ExperimentConfig
    from remuda.policy.files.playable import Playable
    from remuda.wire.messages import CheckpointRecord

_TRAIN_ITER = re.compile(r"[0-9]{1,18}")
_MOST_LISTED = 8
"""Numbers of checkpoints in an error."""

RunDirArgument = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", help="A run folder, its model/ folder, or an exported .onnx file.")
]
Episodes = Annotated[
    int | None,
    typer.Option(
        "-n", "--episodes", min=1, max=1_000_000, help="Number of episodes (default: 100; 1 with --follow or --record)."
    ),
]
Length = Annotated[
    int, typer.Option("-l", "--length", min=0, help="Longest episode in steps; 0: the environment's own limit.")
]
Which = Annotated[
    str | None,
    typer.Option("-i", "--iteration", help="Which policy: -1 newest (the default), best, a train_iter, or model."),
]
Deterministic = Annotated[bool, typer.Option("-d", "--deterministic", help="Act greedily, without exploration.")]
NoSearch = Annotated[
    bool,
    typer.Option("--no-search", help="Act by the network alone, where the algorithm searches (MuZero)."),
]
NoRender = Annotated[bool, typer.Option("-nr", "--no-render", help="Show nothing; this is faster.")]
Record = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Film each episode as an MP4 in DIR; older films are overwritten.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Play each newer policy of a running run, until it is over.")]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Allow code from the folder: files of another user, a module in it, vars.pkl. Such code can do anything.",
    ),
]
EvaluationSeed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Seed of the episodes (default: the run's seed).")
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="With --against: which of several policies is judged; in a league: which plays.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Several agents: one is played by -i, all others by these checkpoints (as -i names them; in a league also "
        "POLICY, or POLICY/ITERATION).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Values of the options."""

    run_dir: RunDirArgument
    episodes: Episodes = None
    length: Length = 0
    iteration: Which = None
    deterministic: Deterministic = False
    no_search: NoSearch = False
    no_render: NoRender = False
    record: Record = None
    follow: Follow = False
    trust_code: TrustCode = False
    seed: EvaluationSeed = None
    policy: PolicyOption = None
    against: Against = None
    as_json: AsJson = False

    @property
    def folder(self) -> Path:
        """Folder of the run, or of the exported file."""
        return self.run_dir.parent if is_onnx(self.run_dir) else self.run_dir

    @property
    def which(self) -> str:
        """Checkpoint to play; the default is the newest."""
        return self.iteration or "-1"

    def playing(self, run: ExperimentConfig) -> list[str]:
        """Return the names of the policies of a run with several agents that play: all, or one of a league, which acts
        for all agents."""
        names, league = sorted(run.policies) or [""], run.self_play.league
        if league is None:
            return names
        return [self.policy or next(name for name in names if name not in league.exploiters)]

    @property
    def number(self) -> int:
        return self.episodes or (1 if self.follow or self.record is not None else 100)


@dataclass(frozen=True)
class PlayedPolicies:
    """Policies that play together; a run with one agent has one."""

    playables: Mapping[str, Playable]
    """Policies by name; the name is empty for a single policy."""
    record: CheckpointRecord | None = None
    """Record of the first policy, from index.json."""
    judged: str | None = None
    """Policy with one agent that plays against `others`."""
    others: Mapping[str, Playable] | None = None
    """Opponents, by the name of their policy."""

    @property
    def first(self) -> Playable:
        """The first policy."""
        return next(iter(self.playables.values()))


def check(options: EvaluateOptions) -> None:
    """Raise InputError for a missing policy, or for contradicting options."""
    run_dir, iteration, follow = options.run_dir, options.iteration, options.follow
    if is_onnx(run_dir):
        if follow or iteration is not None:
            raise InputError(f"{run_dir} is one policy: for {'--follow' if follow else '-i'} give the run folder")
        return
    if not (run_dir / "config.json").is_file():
        if not is_model(run_dir):
            raise InputError(_not_a_run(run_dir))
        if follow or iteration is not None:
            option = "--follow" if follow else "-i"
            raise InputError(f"{run_dir} is a model/ folder with one policy; for {option} give the run folder")
    if follow and iteration not in (None, "-1"):
        raise InputError(
            f"--follow plays the newest policy, and -i {iteration} asks for another: give only one of them"
        )


def require_run(folder: Path) -> None:
    """Raise InputError for a folder without a run."""
    if not (folder / "config.json").is_file():
        raise InputError(_not_a_run(folder))


def _not_a_run(folder: Path) -> str:
    if not folder.is_dir():
        address = address_of(folder)
        if address is not None:
            return f"{address} is an address: copy the run, with `remuda fetch {quote(address)}`"
        return f"{folder} is not a run folder: it does not exist"
    runs = sorted(path.parent.name for path in folder.glob("*/config.json"))
    hint = f"; did you mean {quote(str(folder / runs[0]))}?" if runs else ""
    return f"{folder} is not a run folder: it has no config.json{hint}"


def require_playable(options: EvaluateOptions, run: ExperimentConfig | None) -> None:
    """Raise InputError for options that do not fit the number of agents. `run` has the settings of a run with several
    agents."""
    if run is None:
        if options.policy is not None or options.against is not None:
            raise InputError("--policy and --against are for environments with several agents: leave them out")
        return
    for option, which in (("-i", options.which), ("--against", options.against)):
        if which == "model":
            raise InputError(
                f"{option} model: with several agents checkpoints play; give -1 (newest), best, or a train_iter"
            )
    if options.policy is not None and options.against is None and run.self_play.league is None:
        raise InputError("--policy says who plays --against: give both, or neither")
    if options.policy is not None and options.policy not in run.policies:
        known = f"there are {', '.join(run.policies)}" if run.policies else "all agents share one"
        raise InputError(f"--policy {options.policy}: the run has no such policy; {known}")
    if options.follow and options.against is not None:
        raise InputError("--follow plays the newest policies, and --against older ones: give only one of them")


def chosen(options: EvaluateOptions, run: ExperimentConfig | None) -> PlayedPolicies:
    """The chosen policies; `run` are the settings of a run with several agents."""
    if run is None:
        playable, record = _only(options)
        return PlayedPolicies({"": playable}, record)
    names = options.playing(run)
    newest = {name: _checkpoint(options, name, options.which, "-i") for name in names}
    if options.against is None:
        return PlayedPolicies(newest)
    against = {name: options.against for name in names}
    if run.self_play.league is not None:
        against = _in_league(options.against, run, names[0])
    others = {name: _checkpoint(options, name, which, "--against") for name, which in against.items()}
    return PlayedPolicies(newest, judged=options.policy or names[0], others=others)


def _in_league(against: str, run: ExperimentConfig, judged: str) -> dict[str, str]:
    """Return the policy of an opponent in a league, and its checkpoint: `main`, `main/best`, or `best` of the judged
    policy. Raises InputError."""
    if against in run.policies:
        return {against: "-1"}
    policy, slash, which = against.rpartition("/")
    if slash and policy not in run.policies:
        known = f"there are {', '.join(sorted(run.policies))}" if run.policies else "leave the name out"
        raise InputError(f"--against {against}: the run has no policy {policy!r}; {known}")
    return {policy or judged: which}


def _checkpoint(options: EvaluateOptions, policy: str, which: str, option: str) -> Playable:
    """Load the checkpoint of a policy of a run with several agents."""
    from remuda.policy.files.playable import checkpoint_playable

    ckpt = folder_of_policy(options.run_dir, policy).ckpt
    path, _ = named_checkpoint(ckpt, which, option)
    return checkpoint_playable(
        path, run_dir=options.run_dir, trust_code=options.trust_code, search=not options.no_search
    )


def _only(options: EvaluateOptions) -> tuple[Playable, CheckpointRecord | None]:
    """Load the policy of a run with one agent, and return its record in index.json."""
    from remuda.policy.files.playable import checkpoint_playable, exported_playable, of_run

    run_dir, iteration = options.run_dir, options.which
    trust_code, search = options.trust_code, not options.no_search
    if is_onnx(run_dir) or is_model(run_dir):
        return exported_playable(run_dir, trust_code=trust_code, search=search), None
    if iteration == "model":
        return of_run(exported_playable(run_dir / "model", trust_code=trust_code, search=search), run_dir), None
    path, record = named_checkpoint(run_dir / "ckpt", iteration, also=", and model (model/)")
    playable = checkpoint_playable(path, trust_code=trust_code, search=search)
    return of_run(playable, run_dir), record


def several_agents(run_dir: Path) -> ExperimentConfig | None:
    """Return the config of a run with several agents; None for a run with one agent."""
    from remuda.config.errors import ConfigError
    from remuda.config.load import load_config

    try:
        config = load_config(run_dir / "config.json", import_algorithm=False, masks=True).config
    except ConfigError:  # a model/ folder, or one that the following says something about
        return None
    return config if config.env.kind == "pettingzoo" else None


def named_checkpoint(
    ckpt: Path, iteration: str, option: str = "-i", *, also: str = ""
) -> tuple[Path, CheckpointRecord | None]:
    """Return the checkpoint named by this option, with its record if index.json lists it. `also` lists further values
    of the option. Raises InputError, CheckpointIndexError."""
    from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError

    index, iteration = CheckpointIndex(ckpt), iteration.removeprefix("iteration_")
    records = {str(record.train_iter): record for record in index.records}
    if _TRAIN_ITER.fullmatch(iteration):
        with suppress(CheckpointIndexError):
            return index.path(int(iteration)), records.get(iteration)
    if index.last is None:
        raise InputError(f"{ckpt} has no checkpoint yet: {index.folder / 'index.json'} lists none")
    if iteration not in ("best", "-1"):
        raise InputError(
            f"{option} {iteration}: {ckpt} has no such checkpoint; there are: "
            f"{_some([record.train_iter for record in index.records], iteration, ckpt)}-1 (newest), best{also}"
        )
    record = index.last if iteration == "-1" else index.best
    if record is None:
        raise InputError(f"{ckpt} has no best checkpoint, since none was evaluated yet; play the newest: {option} -1")
    return ckpt / record.file, record


def _some(train_iters: Sequence[int], iteration: str, ckpt: Path) -> str:
    """List these numbers of checkpoints, in order, for people; of many the first, the nearest, the last, and the way to
    list all."""
    shown, rest = list(train_iters), ""
    if len(shown) > _MOST_LISTED:
        wanted = int(iteration) if _TRAIN_ITER.fullmatch(iteration) else shown[-1]
        nearest = sorted(shown, key=lambda one: abs(one - wanted))[: _MOST_LISTED - 2]
        shown, rest = sorted({shown[0], *nearest, shown[-1]}), f"and others (`ls {ckpt}` lists all {len(shown)}), "
    return "".join(f"{one}, " for one in shown) + rest


def newest_if_none_is_best(ckpt: Path) -> str:
    """Return the value of `-i` for the best checkpoint, or for the newest checkpoint without an evaluation. Raises
    CheckpointIndexError."""
    from remuda.storage.checkpoint_index import CheckpointIndex

    return "-1" if CheckpointIndex(ckpt).best is None else "best"
