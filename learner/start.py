"""Start of a learner: with new weights, with weights of another run, or from its own checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from pydantic import JsonValue

from remuda.config.dump import changes
from remuda.config.plain import masked
from remuda.config.schema import ExperimentConfig
from remuda.environments.seeding import generator
from remuda.environments.spaces import Space
from remuda.learner.checkpoint import CheckpointState, load, restore, restore_rngs
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.networks.tensors import usable
from remuda.policy.networks.trunks import ConvolutionTrunk
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec


def new_algorithm(config: ExperimentConfig, observation: Space, action: Space) -> Algorithm:
    """Build the algorithm for a single environment's spaces; the seed determines weights and torch's generator. With
    `learner.compile` its convolutions are compiled at the first update and for each new size of a batch.

    Raises UnsupportedSpaceError, DeviceError.
    """
    usable(config.learner.device, setting="learner.device")
    specs = ObservationSpec.of(observation), ActionSpec.of(action)
    torch.manual_seed(_seed(config, "updates"))
    algorithm = make_algorithm(config, *specs, _seed(config, "weights"))
    if config.learner.compile:
        for module in algorithm.network.modules():
            if isinstance(module, ConvolutionTrunk):
                module.compile_learning()
    return algorithm


def take_weights(path: Path, algorithm: Algorithm) -> None:
    """Load only the weights of a checkpoint. Raises CheckpointError."""
    try:
        algorithm.load_weights(load(path).algorithm)
    except (StateMismatchError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def continue_from(
    path: Path, algorithm: Algorithm, config: ExperimentConfig, *, recorded: str | None = None
) -> tuple[CheckpointState, list[str]]:
    """Continue from a checkpoint: weights, optimizer, schedules and torch's generator. `recorded`: see load.

    Returns the checkpoint's state, and warnings about other package versions. Raises CheckpointError, with the
    differing settings if the checkpoint is of another network.
    """
    state = load(path, recorded=recorded)
    try:
        warnings = restore(state, algorithm)
    except CheckpointError as error:
        changed = _changed_network(state, config)
        if not changed:
            raise
        raise CheckpointError(
            f"{path} is of another network: {'; '.join(changed)}. Resume with the settings that it was trained with, "
            "or begin a new run in another folder"
        ) from error
    restore_rngs(state, {})
    return state, warnings


def _changed_network(state: CheckpointState, config: ExperimentConfig) -> list[str]:
    """Return the settings of policy and environment that differ from the checkpoint's."""
    former = {name: state.saved.config.get(name) for name in ("env", "policy")}
    now = masked(config.model_dump(mode="json", include={"env", "policy"}))
    return changes(cast("dict[str, JsonValue]", former), cast("dict[str, JsonValue]", now))


def _seed(config: ExperimentConfig, purpose: str) -> int:
    return int(generator(config.seed, "learner", 0, purpose).integers(2**31))
