"""Checkpoints, and the start of a learner: with new weights, with weights of another run, or from its own checkpoint.

A checkpoint has the state for an exact resume, in a file that `torch.load(weights_only=True)` opens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import torch
from msgspec import Struct
from pydantic import JsonValue

from remuda.config.dump import changes
from remuda.config.learning import Precision
from remuda.config.plain import masked
from remuda.config.schema import ExperimentConfig
from remuda.environments.seeding import generator
from remuda.environments.spaces import Space
from remuda.policy.algorithms import make_algorithm
from remuda.policy.base import Algorithm
from remuda.policy.files.checkpoint_file import (
    CheckpointError,
    encode,
    read,
    require_loadable,
    typed,
    versions,
    write,
)
from remuda.policy.networks.tensors import usable
from remuda.policy.networks.trunks import ConvolutionTrunk
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.atomic import Replacing, replacing
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef
from remuda.worker.serve import HopelessError

_ALGORITHM = ("model", "target_model", "optimizer", "schedules")
"""Keys of Algorithm.state."""
_MOST_REPLACED = 8
"""Overwritten files that a checkpoint names. A learner would have to die as often between a save and its record."""


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


class UnusableStateError(HopelessError):
    """A checkpoint of this algorithm could not be loaded again."""


class _Rngs(Struct):
    torch: object
    numpy: dict[str, dict[str, object]]


class Saved(Struct):
    """The plain parts of a checkpoint; Algorithm.load_state checks the rest."""

    counters: Counters
    policy: PolicyRef
    exploration: dict[str, float]
    best_reward: float | None
    rng: _Rngs
    observation: ObservationSpec
    action: ActionSpec
    config: dict[str, object]
    versions: dict[str, str]
    precision: Precision | None = None
    """Decision of `learner.precision: auto`."""
    replaces: list[str] = []
    """SHA-256 of the files that this one has overwritten, newest first."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run, without weights."""

    counters: Counters
    policy: PolicyRef
    """The last published policy, so a resumed learner continues under a higher epoch."""
    exploration: Mapping[str, float]
    best_reward: float | None = None


@dataclass(frozen=True)
class CheckpointState:
    """A checkpoint that was read and checked. `restore` checks the weights."""

    path: Path
    algorithm: Mapping[str, object]
    """model, target_model, optimizer and schedules, from Algorithm.state."""
    saved: Saved
    """All other parts."""

    @property
    def progress(self) -> Progress:
        """Progress of the run."""
        saved = self.saved
        return Progress(saved.counters, saved.policy, saved.exploration, saved.best_reward)

    @property
    def rngs(self) -> Mapping[str, Mapping[str, object]]:
        """States of numpy's bit generators, by their saved names."""
        return self.saved.rng.numpy


def save(
    path: Path,
    algorithm: Algorithm,
    progress: Progress,
    *,
    config: ExperimentConfig,
    rngs: Mapping[str, np.random.Generator] | None = None,
    now: datetime | None = None,
    replace: Replacing = replacing,
    checks: bool = False,
) -> CheckpointRecord:
    """Write a checkpoint, atomically and synced to the disk, and return its record for index.json.

    `rngs`: generators to continue after a resume; only numpy's default kind. `checks`: the content is loaded again
    before. After an OSError (disk full) an older file of this name is unchanged. Raises UnusableStateError.
    """
    state, whose = algorithm.state(), f"{type(algorithm).__name__}.state()"
    if "model" not in state or not state.keys() <= set(_ALGORITHM):
        raise UnusableStateError(
            f"{whose} has the keys {', '.join(state)}: a checkpoint has model, the state_dict of `network`, and may "
            f"have {', '.join(_ALGORITHM[1:])}, each of which may be a dict"
        )
    parts: dict[str, object] = {
        **state,
        "policy": msgspec.to_builtins(progress.policy),
        "exploration": dict(progress.exploration),
        "best_reward": progress.best_reward,
        "normalisation": None,
        "precision": None if algorithm.products is None else algorithm.products.decided,
        "replaces": _and_replaced(path),
        "rng": {"torch": torch.get_rng_state(), "numpy": {name: _rng(rng) for name, rng in (rngs or {}).items()}},
        "observation": asdict(algorithm.observation),
        "action": asdict(algorithm.action),
        "config": masked(config.model_dump(mode="json")),
    }
    counters = progress.counters
    content = encode(parts, counters)
    if checks:
        try:
            require_loadable(content)
        except ValueError as error:
            raise UnusableStateError(f"{whose} could not be loaded again: {error}") from error
    return write(path, content, counters, policy=progress.policy, now=now, replace=replace)


def load(path: Path, *, recorded: str | None = None) -> CheckpointState:
    """Read a checkpoint. Raises CheckpointError if it is missing, damaged, hostile or newer than this Remuda, or not
    the file with the SHA-256 `recorded`.

    A file that has overwritten the recorded one is right, too: its learner died before its record was written.
    """
    data = read(path)
    saved = typed(path, data, Saved)
    if not isinstance(saved.rng.torch, torch.Tensor):
        raise CheckpointError(f"{path}: rng.torch is not a tensor")
    if recorded is not None and recorded not in ((found := _sha256(path)), *saved.replaces):
        raise CheckpointError(
            f"{path} has the SHA-256 {found}, and the record of this checkpoint says {recorded}: put that file back, "
            "or begin a new run from this one with --initialize-from"
        )
    return CheckpointState(path, {name: data[name] for name in _ALGORITHM if name in data}, saved)


def restore(state: CheckpointState, algorithm: Algorithm) -> list[str]:
    """Continue an algorithm from a checkpoint; returns warnings about other package versions.

    Raises CheckpointError with every missing, unexpected and misshapen key; the algorithm is then unchanged.
    """
    try:
        algorithm.load_state(state.algorithm)
    except (StateMismatchError, KeyError, RuntimeError) as error:  # torch's own is RuntimeError: of custom algorithms
        raise CheckpointError(f"{state.path}: {error}") from error
    if algorithm.products is not None:
        algorithm.products.decided = state.saved.precision
    known = state.saved.versions
    return [
        f"{state.path.name} was saved with {name} {known.get(name, 'of unknown version')}, this is {version}"
        for name, version in versions().items()
        if known.get(name) != version
    ]


def restore_rngs(state: CheckpointState, rngs: Mapping[str, np.random.Generator]) -> None:
    """Restore torch's generator and these of numpy. Raises CheckpointError for a missing name."""
    for name, rng in rngs.items():
        if name not in state.rngs:
            raise CheckpointError(f"{state.path}: the random state of {name!r} is missing")
        rng.bit_generator.state = dict(state.rngs[name])
    torch.set_rng_state(cast("torch.Tensor", state.saved.rng.torch))


def _and_replaced(path: Path) -> list[str]:
    """Return the SHA-256 of the present file of this name, and of files that it has overwritten."""
    try:
        replaced = load(path).saved.replaces
    except CheckpointError:
        return []
    return [_sha256(path), *replaced][:_MOST_REPLACED]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rng(generator: np.random.Generator) -> dict[str, object]:
    state = cast("dict[str, object]", generator.bit_generator.state)
    if not str(state["bit_generator"]).startswith("PCG64"):
        raise ValueError(f"only numpy's default generator (PCG64) can be checkpointed, not {state['bit_generator']}")
    return state
