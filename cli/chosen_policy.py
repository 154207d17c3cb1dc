"""Which policy `remuda evaluate` plays."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from remuda.cli.errors import InputError
from remuda.cli.evaluate_options import EvaluateOptions
from remuda.storage.run_folder import is_model, is_onnx

if TYPE_CHECKING:  # they import torch, which wrong options do not need
    from remuda.config.schema import ExperimentConfig
    from remuda.policy.files.playable import Playable
    from remuda.storage.checkpoint_index import CheckpointIndex
    from remuda.wire.messages import CheckpointRecord


def check(options: EvaluateOptions) -> None:
    """Raise InputError where there is no policy to play, or options do not go together."""
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
    """Raise InputError unless a folder is that of a run."""
    if not (folder / "config.json").is_file():
        raise InputError(_not_a_run(folder))


def _not_a_run(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not a run folder: it does not exist"
    runs = sorted(path.parent.name for path in folder.glob("*/config.json"))
    hint = f"; did you mean {quote(str(folder / runs[0]))}?" if runs else ""
    return f"{folder} is not a run folder: it has no config.json{hint}"


def chosen(options: EvaluateOptions) -> tuple[Playable, CheckpointRecord | None]:
    """The chosen policy, and its record in index.json. Raises InputError."""
    from remuda.policy.files.checkpoint_file import CheckpointError
    from remuda.policy.files.exported_policies import NoOnnxError
    from remuda.policy.files.playable import checkpoint_playable, model_playable, of_run, onnx_playable

    run_dir, iteration = options.run_dir, options.which
    trust_code, search = options.trust_code, not options.no_search
    try:
        if is_onnx(run_dir):
            return onnx_playable(run_dir, trust_code=trust_code, search=search), None
        if is_model(run_dir):
            return model_playable(run_dir, trust_code=trust_code, search=search), None
        if iteration == "model":
            return of_run(model_playable(run_dir / "model", trust_code=trust_code, search=search), run_dir), None
        record = named_checkpoint(run_dir / "ckpt", iteration, also=", and model (model/)")
        playable = checkpoint_playable(run_dir / "ckpt" / record.file, trust_code=trust_code, search=search)
        return of_run(playable, run_dir), record
    except (CheckpointError, NoOnnxError) as error:
        raise InputError(str(error)) from error


def several_agents(run_dir: Path) -> ExperimentConfig | None:
    """The config of a run whose environment has several agents; None for others."""
    from remuda.config.errors import ConfigError
    from remuda.config.load import load_config

    try:
        config = load_config(run_dir / "config.json", import_algorithm=False, masks=True).config
    except ConfigError:  # a model/ folder, or one that the following says something about
        return None
    return config if config.env.kind == "pettingzoo" else None


def named_checkpoint(ckpt: Path, iteration: str, option: str = "-i", *, also: str = "") -> CheckpointRecord:
    """The checkpoint that was named by this option; `also` are other values that it can have. Raises InputError."""
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


def newest_if_none_is_best(ckpt: Path) -> str:
    """The best checkpoint, as `-i` names it; the newest where none was evaluated. Raises InputError."""
    return "-1" if _index(ckpt).best is None else "best"


def _index(ckpt: Path) -> CheckpointIndex:
    from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError

    try:
        return CheckpointIndex(ckpt)
    except CheckpointIndexError as error:
        raise InputError(str(error)) from error
