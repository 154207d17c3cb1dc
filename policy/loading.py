"""Trained policies out of checkpoints and run folders: what evaluators play and what users load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from msgspec import Struct

from remuda.config.schema import ExperimentConfig
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Policy, StateMismatchError
from remuda.policy.checkpoint_file import CheckpointError, read, typed
from remuda.policy.schedules import exploration
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Counters

Which = int | Literal["best", "last"]


@dataclass(frozen=True)
class TrainedPolicy:
    """A policy as one checkpoint holds it."""

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


class GetAction(Protocol):
    """Maps one observation, as the environment gives it, to one action, as the environment takes it: an int where its
    actions are Discrete, else an array."""

    def __call__(self, observation: object, *, deterministic: bool = True) -> int | np.ndarray: ...


def load_checkpoint_policy(path: Path) -> TrainedPolicy:
    """Rebuild the acting side from a checkpoint file. Raises CheckpointError."""
    saved = typed(path, read(path), _Saved)
    try:
        config = ExperimentConfig.model_validate(saved.config)
    except ValueError as error:
        raise CheckpointError(f"{path}: its config does not fit this Remuda: {error}") from error
    policy = make_policy(config, saved.observation, saved.action)
    tensors = {name: value for name, value in saved.model.items() if isinstance(value, torch.Tensor)}
    try:
        policy.load_state({name: tensor.numpy() for name, tensor in tensors.items()})
    except StateMismatchError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return TrainedPolicy(policy, config, saved.counters, saved.observation, saved.action)


def find_checkpoint(run_dir: str | Path, which: Which = "best") -> Path:
    """Look up a run's checkpoint: the best (the last where none was evaluated), the last, or that of an iteration.

    Raises CheckpointError where the run has none, CheckpointIndexError where it lists none of this iteration.
    """
    index = CheckpointIndex(RunFolder(Path(run_dir)).ckpt)
    listed = index.record(which) if isinstance(which, int) else index.best if which == "best" else index.last
    record = listed or index.last
    if record is None:
        raise CheckpointError(f"{run_dir}: no checkpoint is listed in {index.folder / 'index.json'}")
    return index.folder / record.file


def load_policy(run_dir: str | Path, which: Which = "best") -> GetAction:
    """Load a run's policy as a function from one observation to one action.

    Not deterministic, it explores as the run did at that checkpoint, the same way every time it is loaded.
    """
    trained = load_checkpoint_policy(find_checkpoint(run_dir, which))
    counters = trained.counters
    explores = exploration(trained.config.policy, env_step=counters.env_step, train_iter=counters.train_iter)
    rng = np.random.default_rng(trained.config.seed)

    def get_action(observation: object, *, deterministic: bool = True) -> int | np.ndarray:
        actions = trained.policy.act(np.asarray(observation)[None], explores, rng, deterministic=deterministic)
        action: np.ndarray = actions[0]
        return int(action) if trained.action.n is not None else action

    return get_action


def load_value(run_dir: str | Path, which: Which = "best") -> Callable[[object], float]:
    """Load a run's value function: one observation to the return expected from there on."""
    policy = load_checkpoint_policy(find_checkpoint(run_dir, which)).policy

    def value(observation: object) -> float:
        return float(policy.value(np.asarray(observation)[None])[0])

    return value
