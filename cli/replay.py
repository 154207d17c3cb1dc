"""`remuda replay` and `remuda reproduce`: play episodes or a whole run again, and compare to the last bit."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.chosen_policy import Record as RecordOption
from remuda.cli.chosen_policy import TrustCode, require_run
from remuda.cli.errors import FAILED, InputError, RunFailedError
from remuda.cli.options import AsJson
from remuda.cli.output import reserved_stdout

if TYPE_CHECKING:  # they load environments and torch, which wrong options do not need
    from remuda.client.episodes import Episode, Record
    from remuda.client.replaying import Outcome, Replayer, Step
    from remuda.client.reproducing import Agreement

REPLAY_EXAMPLE = "remuda replay runs/cartpole_dqn --worst 3 --record films"
REPRODUCE_EXAMPLE = "remuda reproduce runs/cartpole_dqn --env-steps 5000"
MOST_SHOWN = 20

RunArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
EpisodeIds = Annotated[
    list[str] | None, typer.Option("--episode", metavar="ID", help="An episode, as listed: 0.0.3.17; repeatable.")
]
Worst = Annotated[int | None, typer.Option(metavar="N", min=1, help="The N episodes with the lowest returns.")]
Best = Annotated[int | None, typer.Option(metavar="N", min=1, help="The N episodes with the highest returns.")]
ShowSteps = Annotated[bool, typer.Option("--steps", help="Print every step of the chosen episodes.")]


def replay(
    run_dir: RunArgument,
    episode: EpisodeIds = None,
    worst: Worst = None,
    best: Best = None,
    steps: ShowSteps = False,
    record: RecordOption = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Play training episodes again from their recorded actions, and compare them with the record to the last bit.

    Every reward, every end and 32 bits of every observation are compared; the first difference is named, since an
    environment that does not repeat itself is not deterministic (or its code has changed). Without a choice all
    episodes are played. An episode's ID is COLLECTOR.GENERATION.COPY.NUMBER. Everything before it in its copy is
    played, too, since the environment's random numbers continue from episode to episode. Exit code 0 if all are equal,
    else 1.
    """
    require_run(run_dir)
    if (steps or record is not None) and not (episode or worst or best):
        raise InputError("--steps and --record need a choice of episodes: --worst N, --best N or --episode ID")
    from remuda.client.episodes import ReplayError, read_record
    from remuda.client.replaying import Replayer
    from remuda.client.replaying import replay as played

    with reserved_stdout(alone=as_json) as output:
        try:
            found = read_record(run_dir)
        except ReplayError as error:
            raise InputError(str(error)) from error
        chosen = _chosen(found, episode or (), worst, best)
        replayer = Replayer(found, trust_code=trust_code, render_mode=None if record is None else "rgb_array")
        listed: dict[str, list[Step]] = {}
        films: list[Path] = []
        with _failures_of_environments():
            if steps or record is not None:
                outcomes = [_watched(replayer, one, record, listed.setdefault(one.id, []), films) for one in chosen]
            else:
                outcomes = played(replayer, chosen, partial(_progress, len(chosen)))
        shown = (_episodes_json if as_json else _episodes_text)(found, outcomes, listed if steps else {}, films)
        print(shown, file=output, flush=True)
    if any(one.difference is not None for one in outcomes):
        raise typer.Exit(FAILED)


def _chosen(found: Record, ids: Sequence[str], worst: int | None, best: int | None) -> list[Episode]:
    by_id = {one.id: one for one in found.episodes}
    if unknown := [name for name in ids if name not in by_id]:
        some = ", ".join(list(by_id)[:3])
        raise InputError(f"--episode {unknown[0]}: no such episode is recorded; there are {some} and more")
    counted = sorted((one for one in found.episodes if one.counted), key=lambda one: one.mean_return)
    if not (ids or worst or best):
        return [one for one in found.episodes if one.counted]
    chosen = [*(by_id[name] for name in ids), *counted[: worst or 0], *reversed(counted[-best:] if best else [])]
    return list({one.id: one for one in chosen}.values())


@contextmanager
def _failures_of_environments() -> Generator[None]:
    """Name the environment in errors that it raises: any may come."""
    try:
        yield
    except Exception as error:
        from remuda.cli.errors import exit_code

        if exit_code(error) is not None:
            raise
        raise RunFailedError(f"the environment failed: {type(error).__name__}: {error}") from error


def _progress(of: int, count: int) -> None:
    if count < of:
        print(f"{count} of {of} episodes", file=sys.stderr, flush=True)


def _watched(
    replayer: Replayer, episode: Episode, record: Path | None, steps: list[Step], films: list[Path]
) -> Outcome:
    """Play an episode; append the steps to `steps` and, with the folder `record`, the film to `films`."""
    from remuda.client.replaying import watch
    from remuda.environments.films import EpisodeFilms, draw_unseen

    if record is None:
        return watch(replayer, episode, steps.append)
    draw_unseen()
    made: list[EpisodeFilms] = []

    def camera(rendered: object) -> EpisodeFilms:
        made.append(EpisodeFilms(rendered, record))  # type: ignore[arg-type]
        made[0].begin(episode.id)
        return made[0]

    outcome = watch(replayer, episode, steps.append, camera=camera)
    for film in made:
        film.cut()  # of an episode that ends with a difference
        films += film.written
    return outcome


def _episodes_json(
    found: Record, outcomes: Sequence[Outcome], steps: dict[str, list[Step]], films: Sequence[Path]
) -> str:
    episodes = [
        {
            "id": one.episode.id,
            "returns": dict(one.episode.returns),
            "length": one.episode.length,
            "policy_versions": list(one.episode.versions),
            "counted": one.episode.counted,
            "equal": one.difference is None,
            "difference": one.difference,
            "step": one.step,
            **({"steps": [asdict(step) for step in steps[one.episode.id]]} if one.episode.id in steps else {}),
        }
        for one in outcomes
    ]
    content = {
        "recorded": len(found.episodes),
        "counted": sum(one.counted for one in found.episodes),
        "equal": all(one.difference is None for one in outcomes),
        "episodes": episodes,
        "videos": [str(path) for path in films],
        "notes": list(found.notes),
    }
    return json.dumps(content, indent=2)


def _episodes_text(
    found: Record, outcomes: Sequence[Outcome], steps: dict[str, list[Step]], films: Sequence[Path]
) -> str:
    from remuda.client.replaying import blamed

    counted = sum(one.counted for one in found.episodes)
    equal = [one for one in outcomes if one.difference is None]
    lines = [f"recorded   {len(found.episodes)} episodes, {counted} of them counted"]
    shown = sorted(outcomes, key=lambda one: (one.difference is None, one.step is None, one.episode.mean_return))
    lines.append(f"{'episode':14} {'return':>10} {'length':>7}  {'policy':12} replay")
    for one in shown[:MOST_SHOWN]:
        episode, (first, last) = one.episode, one.episode.versions
        policy = f"{first}" if first == last else f"{first} to {last}"
        replayed = "equal" if one.difference is None else one.difference
        lines.append(f"{episode.id:14} {episode.mean_return:10.6g} {episode.length:7}  {policy:12} {replayed}")
    if len(shown) > MOST_SHOWN:
        lines.append(f"… and {len(shown) - MOST_SHOWN} more (--json has all)")
    for name, own in steps.items():
        lines += ["", f"episode {name}:", *(_step_line(step) for step in own)]
    lines += [f"recorded {path}" for path in films]
    lines += [f"note: {note}" for note in found.notes]
    compared = sum(one.episode.length for one in equal)
    if len(equal) == len(outcomes):
        verdict = f"All {len(equal)} episodes are equal to the last bit: {compared} steps."
    else:
        verdict = f"{len(equal)} of {len(outcomes)} episodes are equal to the last bit. {blamed(found)}"
    return "\n".join([*lines, "", verdict])


def _step_line(step: Step) -> str:
    parts = [
        f"{agent + ': ' if len(step.observations) > 1 else ''}"
        + (f"action {json.dumps(step.actions[agent])}  reward {step.rewards[agent]:g}  " if step.actions else "reset  ")
        + f"observation {json.dumps(observation)[:100]}"
        for agent, observation in step.observations.items()
    ]
    return f"  {step.number:5}  " + "  |  ".join(parts)


Again = Annotated[
    Path | None, typer.Option("--run-dir", metavar="DIR", help="Folder of the second run (default: RUN_DIR_again).")
]
Against = Annotated[
    Path | None, typer.Option(metavar="RUN_DIR", help="Run nothing: compare with this run, which exists already.")
]
EnvSteps = Annotated[
    int | None, typer.Option("--env-steps", metavar="N", min=1, help="Run only the first N environment steps again.")
]


def reproduce(
    run_dir: RunArgument,
    run_again_in: Again = None,
    against: Against = None,
    env_steps: EnvSteps = None,
    as_json: AsJson = False,
) -> None:
    """Run a run's config again in one process, and compare both runs to the last bit.

    Compares config, code and packages, then the results: checkpoints (weights, optimizer, random states), rows of
    progress.txt without times, checksums of stored experience, and every collected step. Says where the runs part
    first. Exit code 0 if all results are equal, else 1. Runs of several processes (remuda launch) are not
    deterministic: their second run differs.
    """
    require_run(run_dir)
    second = _second(run_dir, run_again_in, against, env_steps)
    from remuda.client.reproducing import compare, is_parallel

    with reserved_stdout(alone=as_json) as output:
        if against is None:
            if is_parallel(run_dir):
                text = f"{run_dir} was run by several processes: this run in one process cannot repeat their order"
                print(f"warning: {text}", file=sys.stderr, flush=True)
            _run_again(run_dir, second, env_steps)
        agreement = compare(run_dir, second)
        print(
            _runs_json(agreement, second) if as_json else _runs_text(agreement, run_dir, second),
            file=output,
            flush=True,
        )
    if not agreement.equal:
        raise typer.Exit(FAILED)


def _second(run_dir: Path, again: Path | None, against: Path | None, env_steps: int | None) -> Path:
    if against is not None:
        if again is not None or env_steps is not None:
            raise InputError("--against runs nothing, so it takes neither --run-dir nor --env-steps")
        require_run(against)
        return against
    second = again or run_dir.resolve().with_name(f"{run_dir.resolve().name}_again")
    if second.is_dir() and any(second.iterdir()):
        raise InputError(
            f"{second} is taken: choose another folder with --run-dir, or compare with the run in it: "
            f"remuda reproduce {quote(str(run_dir))} --against {quote(str(second))}"
        )
    return second


def _run_again(run_dir: Path, second: Path, env_steps: int | None) -> None:
    from remuda.client.progress import shown_progress
    from remuda.client.reproducing import rerun
    from remuda.config.load import load_config
    from remuda.storage.run_folder import RunFolder
    from remuda.worker.process import bound_threads

    bound_threads()
    config = load_config(RunFolder(run_dir).config_json).config
    with shown_progress(config) as show:
        rerun(run_dir, second, most_env_steps=env_steps, on_progress=show)


def _runs_json(agreement: Agreement, second: Path) -> str:
    parts = {
        one.what: {"equal": one.equal, "text": one.text, "parts_at_env_step": one.parts_at, "compared": one.found}
        for one in agreement.parts
    }
    content = {
        "equal": agreement.equal,
        "verdict": agreement.verdict,
        "env_step": agreement.env_step,
        "run_dir": str(second),
        "notes": list(agreement.notes),
        "parts": parts,
    }
    return json.dumps(content, indent=2)


def _runs_text(agreement: Agreement, first: Path, second: Path) -> str:
    width = max(len(one.what) for one in agreement.parts)
    lines = [f"first      {first}", f"second     {second}"]
    lines += [f"{one.what:{width}} {'equal  ' if one.equal else 'DIFFERS'} {one.text}" for one in agreement.parts]
    lines += [f"note: {note}" for note in agreement.notes]
    return "\n".join([*lines, "", agreement.verdict])
