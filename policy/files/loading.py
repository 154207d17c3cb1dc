"""Loads trained policies from checkpoints, and checkpoints from run folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from msgspec import Struct

from remuda.config.schema import ExperimentConfig
from remuda.environments.trust import distrusted_algorithm, trusted_source_dir
from remuda.policy.algorithms import NoSearchError, UnknownAlgorithmError, make_algorithm, make_policy, searches
from remuda.policy.base import Algorithm, Policy
from remuda.policy.files.checkpoint_file import CheckpointError, read, typed
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters

Which = int | Literal["best", "last"]


@dataclass(frozen=True)
class TrainedPolicy:
    """The policy of one checkpoint."""

    policy: Policy
    config: ExperimentConfig
    counters: Counters
    observation: ObservationSpec
    action: ActionSpec


class _Saved(Struct):
    model: dict[str, object]
    config: dict[str, object]
    counters: Counters
    observation: ObservationSpec
    action: ActionSpec


def load_checkpoint_policy(
    path: Path,
    *,
    config: ExperimentConfig | None = None,
    run_dir: Path | None = None,
    trust_code: bool = False,
    search: bool = True,
) -> TrainedPolicy:
    """Rebuild the acting side from a checkpoint file; without `search` one that acts by its network alone. Raises
    CheckpointError, also where the algorithm has no search that could be left out.

    The policy is built from `config`, or without it from the checkpoint's own config. That may name a custom algorithm,
    which is code: for a run that others may have written to (see remuda.environments.trust) it is imported only with
    `trust_code`. `run_dir` is the folder of that run; unless given, the one that the checkpoint's ckpt/ is in. It must
    be given where each of several policies has a folder in ckpt/.
    """
    saved = typed(path, read(path), _Saved)
    if config is None:
        config = _config_of(path, saved, run_dir=run_dir or path.parent.parent, trust_code=trust_code)
    return _trained(path, saved, config, search=search)


def load_checkpoint_sides(path: Path, *, trust_code: bool = False) -> tuple[TrainedPolicy, Algorithm]:
    """Rebuild both sides from a checkpoint file: what acts, by its network alone, and the algorithm with the weights of
    its network, on the CPU. Raises CheckpointError, as load_checkpoint_policy does."""
    saved = typed(path, read(path), _Saved)
    config = _config_of(path, saved, run_dir=path.parent.parent, trust_code=trust_code)
    learner = config.learner.model_copy(update={"device": "cpu"})
    config = config.model_copy(update={"learner": learner})
    try:
        trained = _trained(path, saved, config, search=not searches(config))
        algorithm = make_algorithm(config, saved.observation, saved.action, seed=config.seed)
        algorithm.load_weights({"model": saved.model})
    except (UnknownAlgorithmError, StateMismatchError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    return trained, algorithm


def _trained(path: Path, saved: _Saved, config: ExperimentConfig, *, search: bool) -> TrainedPolicy:
    try:
        policy = make_policy(config, saved.observation, saved.action, search=search)
    except (UnknownAlgorithmError, NoSearchError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    tensors = {name: value for name, value in saved.model.items() if isinstance(value, torch.Tensor)}
    try:
        policy.load_state({name: tensor.numpy() for name, tensor in tensors.items()})
    except StateMismatchError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return TrainedPolicy(policy, config, saved.counters, saved.observation, saved.action)


def _config_of(path: Path, saved: _Saved, *, run_dir: Path, trust_code: bool) -> ExperimentConfig:
    """The checkpoint's config. Unless trusted, it has no folder to import from that came with the run."""
    try:
        config = ExperimentConfig.model_validate(saved.config)
    except ValueError as error:
        raise CheckpointError(f"{path}: its config does not fit this Remuda: {error}") from error
    if trust_code:
        return config
    distrusted = distrusted_algorithm(config, run_dir=run_dir, checkpoint=path)
    if distrusted is not None:
        raise CheckpointError(distrusted)
    return config.model_copy(update={"source_dir": trusted_source_dir(config.source_dir, run_dir=run_dir)})


def find_checkpoint(run_dir: str | Path, which: Which = "best") -> Path:
    """Look up a run's checkpoint: the best (the last if none was evaluated), the last, or that of an iteration.

    Raises CheckpointError if the run has none, CheckpointIndexError if it lists none of this iteration.
    """
    if not Path(run_dir).is_dir():
        raise CheckpointError(f"{run_dir}: no such run folder")
    index = CheckpointIndex(RunFolder(Path(run_dir)).ckpt)
    listed = index.record(which) if isinstance(which, int) else index.best if which == "best" else index.last
    record = listed or index.last
    if record is None:
        raise CheckpointError(f"{run_dir}: no checkpoint is listed in {index.folder / 'index.json'}")
    return index.folder / record.file
