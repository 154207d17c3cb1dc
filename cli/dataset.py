"""`remuda dataset`: experience of a run as a Minari dataset."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.errors import InputError
from remuda.cli.options import AsJson, epilog, new_group

if TYPE_CHECKING:  # they import numpy and gymnasium, which --help does not need
    from remuda.buffer.chunk import Columns
    from remuda.buffer.episodes import Episodes
    from remuda.config.schema import ExperimentConfig
    from remuda.training.journal_entry import Recovered
    from remuda.wire.messages import ChunkMeta

EXAMPLE = "remuda dataset export runs/cartpole_dqn datasets/cartpole-v0"
INFO_EXAMPLE = "remuda dataset info datasets/cartpole-v0"

RunArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
To = Annotated[Path, typer.Argument(metavar="DATASET", help="A new folder; its name is the dataset's id.")]
From = Annotated[Path, typer.Argument(metavar="DATASET", help="A folder with Minari's data/.")]
Best = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Only the N episodes with the highest returns (for imitation).")
]

group = new_group("Experience as datasets of Minari: out of runs, and what is in them.", example=EXAMPLE)


@group.command(epilog=epilog(EXAMPLE))
def export(run_dir: RunArgument, dataset: To, best: Best = None) -> None:
    """Write the counted episodes in a run's data/ as a Minari dataset.

    A run keeps the newest buffer.capacity rows. Only whole episodes of one agent are written, of algorithms that replay
    steps: dqn, rainbow, sac, td3, crossq, iql. Observations, actions, rewards and ends are those that the learner saw.
    Train from a dataset: remuda train CONFIG --offline DATASET
    """
    from remuda.cli.chosen_policy import require_run

    require_run(run_dir)
    from remuda.buffer.episodes import require_minari, write_dataset
    from remuda.environments.make import make_plain
    from remuda.environments.rebuild import distrusted_environment

    require_minari()
    config = _config(run_dir)
    episodes, counted, missing = _episodes(run_dir, config)
    if (why := distrusted_environment(config.env, source_dir=config.source_dir, run_dir=run_dir)) is not None:
        raise InputError(why)
    chosen = episodes if best is None else episodes.best(best)
    env = make_plain(config.env, source_dir=config.source_dir)
    try:
        spaces = env.observation_space, env.action_space
        _require_plain(*spaces)
        text = f"{len(chosen.lengths)} of {counted} episodes that Remuda collected, seed {config.seed}"
        write_dataset(dataset, chosen, spaces=spaces, env_spec=env.spec, algorithm=config.policy.type, text=text)
    except OSError as error:
        raise InputError(f"{dataset} cannot be written: {error}") from error
    finally:
        env.close()
    print(f"{dataset}: {_summary(chosen)}")
    if len(episodes.lengths) < counted:
        print(f"left out   {counted - len(episodes.lengths)} of the run's {counted} episodes: {missing}")


@group.command(epilog=epilog(INFO_EXAMPLE))
def info(dataset: From, as_json: AsJson = False) -> None:
    """Print the content of a Minari dataset: environment, spaces, episodes, steps and returns."""
    import json

    from remuda.buffer.episodes import read_dataset
    from remuda.storage.run_folder import RunFolder

    if RunFolder(dataset).config_json.is_file():
        raise InputError(
            f"{dataset} is a run, and no dataset yet: remuda dataset export {quote(str(dataset))} NEW_FOLDER"
        )
    found = read_dataset(dataset)
    if as_json:
        returns, lengths = found.episodes.returns.tolist(), found.episodes.lengths.tolist()
        print(json.dumps({**found.about, "returns": returns, "lengths": lengths}))
        return
    for name, value in found.about.items():
        print(f"{name:13} {value}")
    print(f"{'content':13} {_summary(found.episodes)}")


def _summary(episodes: Episodes) -> str:
    returns = episodes.returns
    return (
        f"{len(returns):,} episodes, {episodes.steps:,} steps, mean return {returns.mean():.6g} "
        f"({returns.min():.6g} to {returns.max():.6g})"
    )


def _config(run_dir: Path) -> ExperimentConfig:
    """Return the config of a run that keeps steps of a single policy. Raises InputError."""
    from remuda.config.declaration import Steps
    from remuda.config.load import load_config
    from remuda.policy.algorithms import declaration
    from remuda.storage.run_folder import RunFolder

    config = load_config(RunFolder(run_dir).config_json, import_algorithm=False).config
    if config.env.kind == "pettingzoo":
        raise InputError(f"{run_dir} is a run with several agents, whose episodes cannot be exported yet")
    if config.collector.dataset is not None:
        raise InputError(f"{run_dir} has taken no step: it learned from {config.collector.dataset}")
    declared = declaration(config)
    if not isinstance(declared.rows, Steps) or declared.reuse != "replay":
        kept = "uses every row once and deletes it" if declared.reuse == "once" else "stores sequences, not steps"
        raise InputError(
            f"{run_dir} has no steps to export: policy.type {config.policy.type} {kept}. Runs of dqn, rainbow, sac, "
            "td3, crossq and iql keep their newest buffer.capacity steps"
        )
    return config


def _episodes(run_dir: Path, config: ExperimentConfig) -> tuple[Episodes, int, str]:
    """Return the whole episodes in data/, the number of all counted episodes of the run, and why others are missing.
    Raises InputError."""
    from remuda.buffer.episodes import NotStoredError, counted_episodes

    recovered = _recovered(run_dir)
    counted = recovered.snapshot.counters.episode
    chunks, unreadable = _chunks(run_dir, recovered)
    try:
        episodes, _ = counted_episodes(chunks)
    except NotStoredError as error:
        raise InputError(f"{run_dir} cannot be exported: {error}") from error
    if not counted:
        raise InputError(f"{run_dir} has counted no episode: let it collect longer")
    missing = (
        f"data/ keeps the newest {config.buffer.capacity:,} rows (buffer.capacity) within "
        f"{config.buffer.quota_bytes:,} bytes (buffer.quota_bytes); a run with higher limits keeps more"
    )
    if unreadable:
        missing += (
            f"; {len(unreadable)} of its {len(recovered.chunks)} files cannot be read, the first: {unreadable[0]}"
        )
    if episodes is None:
        raise InputError(f"{run_dir} has no whole episode of the run's {counted}: {missing}")
    return episodes, counted, missing


def _recovered(run_dir: Path) -> Recovered:
    """Read the journal, which lists the counted chunks. Raises InputError."""
    from remuda.storage.run_folder import RunFolder
    from remuda.training.journal import read_policies

    path = RunFolder(run_dir).journal
    if not path.is_file():
        raise InputError(f"{run_dir} has no {path.name}, which lists the counted chunks of data/: was it copied whole?")
    recovered = read_policies(path).get("")
    if recovered is None:
        raise InputError(f"{run_dir} has counted no chunk")
    return recovered


def _chunks(run_dir: Path, recovered: Recovered) -> tuple[list[tuple[ChunkMeta, Columns]], list[str]]:
    """Read the counted chunks in data/; also returns what is wrong with unreadable files."""
    from remuda.buffer.chunk import ChunkError, read_chunk
    from remuda.storage.run_folder import RunFolder

    found, unreadable = list[tuple["ChunkMeta", "Columns"]](), list[str]()
    for chunk in recovered.chunks:
        try:
            found.append((chunk.meta, read_chunk(RunFolder(run_dir).data / chunk.meta.file, chunk.meta)))
        except ChunkError as error:
            unreadable.append(str(error))
    return found, unreadable


def _require_plain(observation: object, action: object) -> None:
    """Raise InputError for observations or actions of several parts, which rows hold packed."""
    from gymnasium import spaces

    for what, space in (("observations", observation), ("actions", action)):
        if not isinstance(space, spaces.Box | spaces.Discrete):
            raise InputError(f"{what} of several parts cannot be exported yet: {space}")
