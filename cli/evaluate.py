"""`remuda evaluate`: play a trained policy."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import AsJson

if TYPE_CHECKING:  # what is played with brings torch, which --help does not need
    from remuda.config.schema import ExperimentConfig
    from remuda.environments.make import SingleEnv
    from remuda.evaluator.evaluate import Episode
    from remuda.wire.messages import CheckpointRecord

EXAMPLE = "remuda evaluate runs/cartpole_dqn -i best -n 20 -d"

RunDirArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
Episodes = Annotated[int, typer.Option("-n", "--episodes", min=1, max=1_000_000, help="How many episodes.")]
Length = Annotated[int, typer.Option("-l", "--length", min=0, help="Longest episode; 0: the environment's own.")]
Which = Annotated[str, typer.Option("-i", "--iteration", help="Which checkpoint: -1 newest, best, or a train_iter.")]
Deterministic = Annotated[bool, typer.Option("-d", "--deterministic", help="Act greedily, without exploration.")]
NoRender = Annotated[bool, typer.Option("-nr", "--no-render", help="Show nothing, and so play faster.")]
EvaluationSeed = Annotated[int | None, typer.Option("--seed", min=0, help="Of the episodes (default: the run's).")]


@dataclass(frozen=True)
class _Played:
    record: CheckpointRecord
    path: Path
    episodes: Sequence[Episode]
    deterministic: bool


def evaluate(
    run_dir: RunDirArgument,
    episodes: Episodes = 100,
    length: Length = 0,
    iteration: Which = "-1",
    deterministic: Deterministic = False,
    no_render: NoRender = False,
    seed: EvaluationSeed = None,
    as_json: AsJson = False,
) -> None:
    """Play a trained policy and print each episode and a summary.

    Without -d the policy explores as its algorithm does at the end of its schedule (DQN: policy.epsilon_end of the
    actions are random). The same seed plays the same episodes again. They are shown where there is a display, one
    after the other; with -nr several are played at once.
    """
    from remuda.worker.life import bound_threads

    bound_threads(1)
    config = _config_of(run_dir)
    if seed is not None:
        config = config.model_copy(update={"seed": seed})
    record = _find(run_dir, iteration)
    path = run_dir / "ckpt" / record.file
    said = print if not as_json else _to_stderr
    said(f"checkpoint {path} (train_iter {record.train_iter}, env_step {record.env_step}{_judged(record)})")
    envs = _environments(config, episodes, render=not no_render and _can_render())
    played = _play(config, path, envs, episodes, length=length, deterministic=deterministic, quiet=as_json)
    result = _Played(record, path, played, deterministic)
    print(_json(result) if as_json else f"\n{_table(result)}")


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def _config_of(run_dir: Path) -> ExperimentConfig:
    from remuda.config.load import load_config

    path = run_dir / "config.json"
    if not path.is_file():
        raise InputError(f"{run_dir} is not a run folder: it has no config.json")
    return load_config(path).config


def _find(run_dir: Path, iteration: str) -> CheckpointRecord:
    from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError

    try:
        index = CheckpointIndex(run_dir / "ckpt")
    except CheckpointIndexError as error:
        raise InputError(str(error)) from error
    if index.last is None:
        raise InputError(f"{run_dir} has no checkpoint yet: {index.folder / 'index.json'} lists none")
    if iteration == "best":
        if index.best is None:
            raise InputError(f"{run_dir} has no best checkpoint yet, since none was evaluated; play the newest: -i -1")
        return index.best
    if iteration == "-1":
        return index.last
    for record in index.records:
        if str(record.train_iter) == iteration:
            return record
    listed = ", ".join(str(record.train_iter) for record in index.records)
    raise InputError(f"-i {iteration}: {run_dir} has no such checkpoint; there are: {listed}, -1 (newest) and best")


def _judged(record: CheckpointRecord) -> str:
    return "" if record.reward is None else f", mean return when it was judged {record.reward:.6g}"


def _can_render() -> bool:
    """Whether there is a display; if not, say so once."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    _to_stderr("no display here: episodes are played without being shown (-nr says the same without this line)")
    return False


def _environments(config: ExperimentConfig, episodes: int, *, render: bool) -> list[SingleEnv]:
    from remuda.environments.errors import EnvironmentBuildError
    from remuda.environments.make import make_single

    count = 1 if render else min(episodes, config.env.num_envs)
    mode = "human" if render else None
    try:
        return [make_single(config.env, source_dir=config.source_dir, render_mode=mode) for _ in range(count)]
    except EnvironmentBuildError as error:
        hint = "; with -nr it would not have to be shown" if render else ""
        raise InputError(f"the run's environment cannot be built here: {error}{hint}") from error


def _play(
    config: ExperimentConfig,
    checkpoint: Path,
    envs: Sequence[SingleEnv],
    episodes: int,
    *,
    length: int,
    deterministic: bool,
    quiet: bool,
) -> Sequence[Episode]:
    from remuda.config.schema import LARGEST_COUNT
    from remuda.environments.seeding import episode_seed, generator
    from remuda.evaluator.evaluate import EvaluationError, evaluate
    from remuda.evaluator.player import episode_report
    from remuda.policy.checkpoint_file import CheckpointError
    from remuda.policy.loading import load_checkpoint_policy
    from remuda.policy.schedules import exploration

    def finished(episode: Episode, count: int) -> None:
        if not quiet:
            print(episode_report(episode, count, train_iter=0, env_step=0).text(), flush=True)

    try:
        trained = load_checkpoint_policy(checkpoint)
        explores = exploration(trained.config.policy, env_step=LARGEST_COUNT, train_iter=LARGEST_COUNT)
        return evaluate(
            envs,
            trained.policy,
            seeds=[episode_seed(config.seed, number) for number in range(episodes)],
            rng=generator(config.seed, "evaluator", 0, "actions"),
            exploration=None if deterministic else explores,
            max_episode_steps=length or None,
            finished=finished,
        )
    except CheckpointError as error:
        raise InputError(str(error)) from error
    except EvaluationError as error:
        raise RunFailedError(f"the evaluation failed: {error}") from error
    finally:
        for env in envs:
            env.close()


def _summary(played: _Played) -> dict[str, float]:
    from remuda.logbook.spread import Spread

    returns = Spread.of([episode.return_ for episode in played.episodes])
    lengths = Spread.of([episode.length for episode in played.episodes])
    return {
        "episodes": len(played.episodes),
        "reward_mean": returns.mean,
        "reward_std": returns.std,
        "reward_max": returns.max,
        "reward_min": returns.min,
        "length_mean": lengths.mean,
    }


def _table(played: _Played) -> str:
    from remuda.logbook.tables import grid

    return grid(_summary(played))


def _json(played: _Played) -> str:
    content = {
        "checkpoint": str(played.path),
        "train_iter": played.record.train_iter,
        "env_step": played.record.env_step,
        "deterministic": played.deterministic,
        **_summary(played),
        "each": [{"seed": one.seed, "return": one.return_, "length": one.length} for one in played.episodes],
    }
    return json.dumps(content, indent=2)
