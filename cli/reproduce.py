"""`remuda reproduce`: runs a run again, and compares both to the last bit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remuda.cli.chosen_policy import require_run
from remuda.cli.errors import FAILED, InputError
from remuda.cli.options import AsJson
from remuda.cli.output import reserved_stdout

if TYPE_CHECKING:  # it imports torch, which wrong options do not need
    from remuda.client.reproducing import Agreement

EXAMPLE = "remuda reproduce runs/cartpole_dqn --env-steps 5000"

RunArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
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
        print(_json(agreement, second) if as_json else _text(agreement, run_dir, second), file=output, flush=True)
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
            f"remuda reproduce {run_dir} --against {second}"
        )
    return second


def _run_again(run_dir: Path, second: Path, env_steps: int | None) -> None:
    from remuda.client.progress import shown_progress
    from remuda.client.reproducing import rerun
    from remuda.config.load import load_config
    from remuda.storage.run_folder import RunFolder
    from remuda.worker.process import bound_threads

    bound_threads()
    stop = load_config(RunFolder(run_dir).config_json).config.stop
    with shown_progress(stop) as show:
        rerun(run_dir, second, most_env_steps=env_steps, on_progress=show)


def _json(agreement: Agreement, second: Path) -> str:
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


def _text(agreement: Agreement, first: Path, second: Path) -> str:
    width = max(len(one.what) for one in agreement.parts)
    lines = [f"first      {first}", f"second     {second}"]
    lines += [f"{one.what:{width}} {'equal  ' if one.equal else 'DIFFERS'} {one.text}" for one in agreement.parts]
    lines += [f"note: {note}" for note in agreement.notes]
    return "\n".join([*lines, "", agreement.verdict])
