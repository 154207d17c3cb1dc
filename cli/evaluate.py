"""`remuda evaluate`: play a trained policy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.asked_output import asked_output
from remuda.cli.errors import InputError
from remuda.cli.options import AsJson

if TYPE_CHECKING:  # playing imports torch, which --help does not need
    from remuda.config.schema import ExperimentConfig
    from remuda.policy.files.playable import Playable
    from remuda.storage.checkpoint_index import CheckpointIndex
    from remuda.wire.messages import CheckpointRecord

EXAMPLE = "remuda evaluate runs/cartpole_dqn -i best -n 20 -d"

RunDirArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder, or its model/ folder.")]
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
    typer.Option("--policy", metavar="NAME", help="With --against: which of several policies is judged."),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Several agents: one is played by -i, all others by these checkpoints (as -i names them).",
    ),
]


def evaluate(
    run_dir: RunDirArgument,
    episodes: Episodes = None,
    length: Length = 0,
    iteration: Which = None,
    deterministic: Deterministic = False,
    no_search: NoSearch = False,
    no_render: NoRender = False,
    record: Record = None,
    follow: Follow = False,
    trust_code: TrustCode = False,
    seed: EvaluationSeed = None,
    policy: PolicyOption = None,
    against: Against = None,
    as_json: AsJson = False,
) -> None:
    """Play a trained policy and print each episode and a summary.

    Without -d the policy explores as at the end of its schedule (DQN: a share policy.epsilon_end of the actions is
    random). The same seed plays the same episodes again. With a display the episodes are shown one after the other;
    with -nr several are played at once. Ctrl-C ends the command with a summary of the finished episodes.

    With --follow each newer policy plays -n episodes: in parallel mode the policies that the learner publishes, in
    serial mode the checkpoints. --json then prints one line of JSON for each policy.

    In an environment with several agents all policies of the run play together. With --against one agent of --policy
    plays against older checkpoints: -i says which checkpoint it is played by, --against those of all others.
    """
    _check(run_dir, iteration, follow=follow)
    several = _several_agents(run_dir)
    from remuda.cli.playing import Asked, Player  # after the checks: it imports torch, which takes seconds
    from remuda.worker.threads import bound_threads

    bound_threads()
    if several is not None:
        if follow or record is not None or no_search:
            raise InputError("--follow, --record and --no-search are not available for several agents: leave them out")
        from remuda.cli.playing_agents import AgentsPlaying, AskedOfAgents

        asked_of_agents = AskedOfAgents(
            run_dir=run_dir,
            which=iteration or "-1",
            policy=policy,
            against=against,
            episodes=episodes or 100,
            length=length,
            deterministic=deterministic,
            trust_code=trust_code,
            seed=seed,
            as_json=as_json,
        )
        with asked_output(alone=as_json) as output:
            AgentsPlaying(asked_of_agents, several, _find, output).play()
        return
    if policy is not None or against is not None:
        raise InputError("--policy and --against are for environments with several agents: leave them out")
    chosen = None if follow else _chosen(run_dir, iteration or "-1", trust_code=trust_code, search=not no_search)
    mode = "rgb_array" if record is not None else None
    if mode is None and not no_render and _can_render():
        mode = "human"
    asked = Asked(
        run_dir=run_dir,
        episodes=episodes or (1 if follow or record is not None else 100),
        length=length,
        deterministic=deterministic,
        render_mode=mode,
        record=record,
        trust_code=trust_code,
        seed=seed,
        as_json=as_json,
        follows=follow,
    )
    with asked_output(alone=as_json) as output, Player(asked, output) as player:
        if chosen is not None:
            player.play(*chosen)
        else:
            from remuda.cli.following import follow_run

            follow_run(run_dir, player, trust_code=trust_code, search=not no_search)


def _check(run_dir: Path, iteration: str | None, *, follow: bool) -> None:
    if not (run_dir / "config.json").is_file():
        from remuda.storage.run_folder import is_model

        if not is_model(run_dir):
            raise InputError(_not_a_run(run_dir))
        if follow or iteration is not None:
            option = "--follow" if follow else "-i"
            raise InputError(f"{run_dir} is a model/ folder with one policy; for {option} give the run folder")
    if follow and iteration not in (None, "-1"):
        raise InputError(
            f"--follow plays the newest policy, and -i {iteration} asks for another: give only one of them"
        )


def _not_a_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not a run folder: it does not exist"
    runs = sorted(path.parent.name for path in folder.glob("*/config.json"))
    hint = f"; did you mean {quote(str(folder / runs[0]))}?" if runs else ""
    return f"{folder} is not a run folder: it has no config.json{hint}"


def _chosen(
    run_dir: Path, iteration: str, *, trust_code: bool, search: bool
) -> tuple[Playable, CheckpointRecord | None]:
    """The chosen policy, and its record in index.json."""
    from remuda.policy.files.checkpoint_file import CheckpointError
    from remuda.policy.files.playable import checkpoint_playable, model_playable, of_run
    from remuda.storage.run_folder import is_model

    try:
        if is_model(run_dir):
            return model_playable(run_dir, trust_code=trust_code, search=search), None
        if iteration == "model":
            return of_run(model_playable(run_dir / "model", trust_code=trust_code, search=search), run_dir), None
        record = _find(run_dir / "ckpt", iteration, also=", and model (model/)")
        playable = checkpoint_playable(run_dir / "ckpt" / record.file, trust_code=trust_code, search=search)
        return of_run(playable, run_dir), record
    except CheckpointError as error:
        raise InputError(str(error)) from error


def _several_agents(run_dir: Path) -> ExperimentConfig | None:
    """The config of a run whose environment has several agents; None for others."""
    from remuda.config.errors import ConfigError
    from remuda.config.load import load_config

    try:
        config = load_config(run_dir / "config.json", import_algorithm=False, masks=True).config
    except ConfigError:  # a model/ folder, or one that the following says something about
        return None
    return config if config.env.kind == "pettingzoo" else None


def _find(ckpt: Path, iteration: str, option: str = "-i", *, also: str = "") -> CheckpointRecord:
    """The checkpoint that was named by this option; `also` are other values that it can have."""
    index = _index(ckpt)
    if index.last is None:
        raise InputError(f"{ckpt} has no checkpoint yet: {index.folder / 'index.json'} lists none")
    if iteration == "best":
        if index.best is None:
            raise InputError(
                f"{ckpt} has no best checkpoint, since none was evaluated yet; play the newest: {option} -1"
            )
        return index.best
    if iteration == "-1":
        return index.last
    for record in index.records:
        if str(record.train_iter) == iteration:
            return record
    listed = ", ".join(str(record.train_iter) for record in index.records)
    raise InputError(
        f"{option} {iteration}: {ckpt} has no such checkpoint; there are: {listed}, -1 (newest), best{also}"
    )


def _index(ckpt: Path) -> CheckpointIndex:
    from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError

    try:
        return CheckpointIndex(ckpt)
    except CheckpointIndexError as error:
        raise InputError(str(error)) from error


def _can_render() -> bool:
    """Whether there is a display; if not, prints a line."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    print(
        "no display: episodes are played and not shown (use -nr to avoid this message)",
        file=sys.stderr,
    )
    return False
