"""`remuda export`: a trained policy as a file that does not need Remuda. `remuda fetch`: a run out of a bucket."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.chosen_policy import (
    TrustCode,
    named_checkpoint,
    newest_if_none_is_best,
    require_run,
    several_agents,
)
from remuda.cli.errors import InputError, RunFailedError
from remuda.cli.options import AsJson

if TYPE_CHECKING:  # they import torch, which wrong options do not need
    from remuda.policy.export.exporting import PolicyExport
    from remuda.policy.files.model_artifact import ModelInfo

EXPORT_EXAMPLE = "remuda export runs/cartpole_dqn --format onnx"
FETCH_EXAMPLE = "remuda fetch s3://bucket/runs/first first"
SUFFIXES = {"torchscript": ".pt", "onnx": ".onnx", "numpy": ".npz"}

RunArgument = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
Which = Annotated[
    str | None,
    typer.Option("-i", "--iteration", help="Which policy: best (the default), -1 newest, or a train_iter."),
]
FormatOption = Annotated[
    Literal["torchscript", "onnx", "numpy"],
    typer.Option("--format", help="torchscript (for torch and libtorch), onnx, or numpy (a module and its weights)."),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The file (default: policy.pt, .onnx or .npz in RUN_DIR/export/)."),
]
Verify = Annotated[
    int, typer.Option(metavar="N", min=100, max=100_000, help="Observations to compare file and policy by.")
]


def export(
    run_dir: RunArgument,
    format: FormatOption,
    iteration: Which = None,
    out: Out = None,
    verify: Verify = 100,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained policy as one file that does not need Remuda.

    Inputs are floats, with one named input per part of an observation; normalisation, one-hot encoding and bounds are
    inside the file. Before the file is put in place, its outputs are compared with the policy on observations of the
    run. FILE.json has the result, and the inputs and outputs. MuZero's policy acts by its network alone, without a
    search.
    """
    require_run(run_dir)
    if several_agents(run_dir) is not None:
        raise InputError(f"{run_dir} is a run with several agents, whose policies cannot be exported yet")
    path = out or run_dir / "export" / f"policy{SUFFIXES[format]}"
    if path.suffix != SUFFIXES[format]:
        raise InputError(f"--out {path}: the name of a file for --format {format} ends in {SUFFIXES[format]}")
    from remuda.worker.process import bound_threads  # after the checks: it imports torch, which takes seconds

    bound_threads()
    info = _written(run_dir, iteration, path, format, verify, trust_code=trust_code)
    if as_json:
        from remuda.policy.files.model_artifact import encoded

        print(encoded(info).decode(), end="")
    else:
        print(_told(info, path))


def _written(
    run_dir: Path,
    iteration: str | None,
    path: Path,
    format: Literal["torchscript", "onnx", "numpy"],
    verify: int,
    *,
    trust_code: bool,
) -> ModelInfo:
    from remuda.policy.files.exported_policies import require_onnx

    if format == "onnx":
        require_onnx()
    made = _policy(run_dir, iteration, verify, trust_code=trust_code)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return made.write(path, format)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _policy(run_dir: Path, iteration: str | None, verify: int, *, trust_code: bool) -> PolicyExport:
    """Return the chosen policy, with observations for the comparison."""
    from remuda.client.recorded import recorded_observations
    from remuda.evaluator.evaluate import EvaluationError
    from remuda.policy.export.exporting import PolicyExport
    from remuda.policy.files.playable import load_checkpoint_sides, of_run

    ckpt = run_dir / "ckpt"
    source, _ = named_checkpoint(ckpt, iteration or newest_if_none_is_best(ckpt))
    trained, algorithm = load_checkpoint_sides(source, trust_code=trust_code)
    try:
        played = of_run(trained.playable(source), run_dir)
        recorded = recorded_observations(played, run_dir, verify, trust_code=trust_code)
    except EvaluationError as error:
        raise RunFailedError(f"the policy could not be played for observations: {error}") from error
    return PolicyExport(algorithm, trained.policy, trained.config, trained.counters, recorded)


def _told(info: ModelInfo, path: Path) -> str:
    from msgspec import UNSET

    parity = info.parity
    assert parity is not UNSET
    equal = "all" if parity.equal_actions == 1.0 else f"{parity.equal_actions:.2%} of the"
    shapes = [f"{one.name} [{', '.join(map(str, one.shape))}]" for one in info.inputs]
    return "\n".join(
        [
            f"{path}: {info.algorithm}, train_iter {info.train_iter}, env_step {info.env_step}",
            f"inputs: {', '.join(shapes)}",
            f"outputs: {', '.join(one.name for one in info.outputs)}",
            f"compared on {parity.observations} observations from {parity.source}: {equal} actions "
            f"are equal, outputs differ by {parity.largest_output_difference:.2g} at most, values by "
            f"{parity.largest_value_difference:.2g}",
            *info.usage,
        ]
    )


Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The run's address: s3://bucket/runs/first.")]
Target = Annotated[Path | None, typer.Argument(metavar="DIR", help="A new folder (default: the last part of ADDRESS).")]


def fetch(address: Address, target: Target = None) -> None:
    """Copy the newest state of a run from a bucket into a new folder, for evaluate, plot, logs and the page.

    The run is not taken over: a process that trains it goes on. To continue a run on this machine, use
    train --resume --run-dir ADDRESS. A coordinator's address gives all of its runs, ADDRESS/RUN this run alone.
    """
    from remuda.storage.bucket.address import address_of
    from remuda.storage.bucket.opening import restore_found
    from remuda.storage.bucket.store import Retries, Store
    from remuda.training.next_command import evaluate_command, plot_command

    place = address_of(address)
    if place is None:
        raise InputError(f"{address} is no address: an address looks like s3://bucket/runs/first")
    folder = (target or Path(place.rpartition("/")[2])).absolute()
    if folder.exists():
        raise InputError(f"{folder} exists: name a new folder, as in: remuda fetch {quote(place)} DIR")
    found = restore_found(
        Store.at(place, Retries()), place, folder, lambda text: print(text, file=sys.stderr, flush=True)
    )
    is_run = any(file.path == "config.json" for file in found.files)
    what, then = "folder of runs", plot_command(folder)
    if is_run:
        what, then = "run folder", evaluate_command(folder, has_best=False)
    print(f"{what} {folder}: {len(found.files)} files of generation {found.epoch}/{found.number}")
    print(f"\nType next:\n  {then}")
