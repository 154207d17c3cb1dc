"""Trained policies with environment, seed and exploration, from checkpoints, policy files or model/."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from msgspec import Struct
from pydantic import ValidationError

from remuda.config.current import evaluated, kwargs_of_stage, on_task, stage_named
from remuda.config.environment import EnvConfig
from remuda.config.load import load_config
from remuda.config.schema import ExperimentConfig
from remuda.environments.errors import EnvironmentBuildError, UnsupportedSpaceError
from remuda.environments.make import SingleEnv, shown
from remuda.environments.rebuild import distrusted_algorithm, distrusted_file, distrusted_model, trusted_source_dir
from remuda.policy.algorithms import (
    NoSearchError,
    UnknownAlgorithmError,
    declaration,
    make_algorithm,
    make_policy,
    searches,
)
from remuda.policy.base import Algorithm, Policy, ValuingActor
from remuda.policy.files.checkpoint_file import CheckpointError, read, typed
from remuda.policy.files.exported_policies import description_of, model_actor, onnx_actor
from remuda.policy.files.policy_file import PolicyFileError, load
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.checkpoint_index import CheckpointIndex, CheckpointIndexError
from remuda.storage.run_folder import MODEL, RunFolder, folder_of_policy, is_onnx
from remuda.wire.messages import CheckpointRecord, Counters, PolicyRef

Which = int | Literal["best", "last"]


@dataclass(frozen=True)
class TrainedPolicy:
    """The policy of a checkpoint."""

    policy: Policy
    config: ExperimentConfig
    counters: Counters
    observation: ObservationSpec
    action: ActionSpec

    def playable(self, source: Path) -> Playable:
        """Add the environment of evaluations, and the exploration at the checkpoint."""
        config, declared = self.config, declaration(self.config)
        return Playable(
            source=source,
            actor=self.policy,
            observation=self.observation,
            action=self.action,
            train_iter=self.counters.train_iter,
            env_step=self.counters.env_step,
            env=evaluated(config).env,
            source_dir=config.source_dir,
            seed=config.seed,
            exploration=declared.exploration_at(self.counters.env_step),
            least_exploration=declared.least_exploration,
        )


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
    """Build the acting side from a checkpoint file.

    Args:
        path: the checkpoint.
        config: replaces the checkpoint's own config.
        run_dir: the folder of the run; default: the parent of the checkpoint's ckpt/. Set it if each of several
            policies has a folder in ckpt/.
        trust_code: import the custom algorithm of the checkpoint's config, which is code, even from a run that other
            people may have written to (see remuda.environments.rebuild).
        search: False: act by the network alone.

    Raises CheckpointError, also if there is no search to leave out.
    """
    saved = typed(path, read(path), _Saved)
    if config is None:
        config = _config_of(path, saved, run_dir=run_dir or path.parent.parent, trust_code=trust_code)
    return _trained(path, saved, config, search=search)


def load_checkpoint_sides(path: Path, *, trust_code: bool = False) -> tuple[TrainedPolicy, Algorithm]:
    """Build both sides from a checkpoint file, on the CPU: the acting side, by its network alone, and the algorithm
    with the weights of its network. Raises CheckpointError, as load_checkpoint_policy does."""
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
    """Read the checkpoint's config. Unless trusted, the config imports nothing from the run's folder."""
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


def find_checkpoint(run_dir: str | Path, which: Which = "best", *, policy: str = "") -> Path:
    """Look up a run's checkpoint: the best (without evaluations the last), the last, or that of an iteration; `policy`
    names one of several policies.

    Raises CheckpointError for a run without checkpoints, CheckpointIndexError for a missing iteration.
    """
    if not Path(run_dir).is_dir():
        raise CheckpointError(f"{run_dir}: no such run folder")
    index = CheckpointIndex(folder_of_policy(Path(run_dir), policy).ckpt)
    if isinstance(which, int):
        return index.path(which)
    record = (index.best if which == "best" else None) or index.last
    if record is None:
        names = sorted(path.parent.name for path in RunFolder(Path(run_dir)).ckpt.glob("*/index.json"))
        several = f": the run has the policies {', '.join(names)}; give policy=" if names else ""
        raise CheckpointError(f"{run_dir}: no checkpoint is listed in {index.folder / 'index.json'}{several}")
    return index.folder / record.file


@dataclass(frozen=True)
class Playable:
    """A policy and its environment."""

    source: Path
    """File of the policy."""
    actor: ValuingActor
    observation: ObservationSpec
    action: ActionSpec
    train_iter: int
    env_step: int | None
    """Null if unknown."""
    env: EnvConfig
    source_dir: str | None
    """Folder of the module of `env.make`."""
    seed: int
    """Of the run."""
    exploration: Mapping[str, float]
    """Exploration at this point of the run; for a model, equal to `least_exploration`."""
    least_exploration: Mapping[str, float]
    """Exploration at the end of its schedule."""


def checkpoint_playable(
    path: Path, *, run_dir: Path | None = None, trust_code: bool = False, search: bool = True
) -> Playable:
    """Load the policy of a checkpoint, with `trust_code` also if that runs code of others, without `search` to act by
    its network alone; `run_dir`: see load_checkpoint_policy. Raises CheckpointError."""
    return load_checkpoint_policy(path, run_dir=run_dir, trust_code=trust_code, search=search).playable(path)


def require_fit(playable: Playable, env: SingleEnv) -> None:
    """Raise EnvironmentBuildError if the policy was trained on observations or actions of another shape."""
    try:
        observation, action = ObservationSpec.of(env.observation_space), ActionSpec.of(env.action_space)
    except UnsupportedSpaceError as error:
        raise EnvironmentBuildError(str(error)) from error
    pairs: list[tuple[str, ObservationSpec | ActionSpec, ObservationSpec | ActionSpec]] = [
        ("observations", playable.observation, observation),
        ("actions", playable.action, action),
    ]
    for what, policy, there in pairs:
        if _form(policy) != _form(there):
            raise EnvironmentBuildError(
                f"the policy does not fit {shown(env)}: its {what} are {_shape_text(policy)}, not {_shape_text(there)}"
            )


def _form(spec: ObservationSpec | ActionSpec) -> tuple[object, ...]:
    return spec.n, spec.shape, spec.counts if isinstance(spec, ActionSpec) else ()


def _shape_text(spec: ObservationSpec | ActionSpec) -> str:
    if spec.n is not None:
        return f"{spec.n} whole numbers"
    arrays = f"arrays of shape {spec.shape}"
    return f"{arrays} with {list(spec.counts)} values" if isinstance(spec, ActionSpec) and spec.counts else arrays


def of_run(playable: Playable, run_dir: Path, policy: str = "") -> Playable:
    """Use environment and seed of the run's config.json, if it exists: the file may have been corrected. The
    environment is that of evaluations, at the task of the policy; `policy` names one of several.

    Raises ConfigError.
    """
    path = RunFolder(run_dir).config_json
    if not path.is_file():
        return playable
    config = load_config(path, import_algorithm=False).config
    config = evaluated_at(config, folder_of_policy(run_dir, policy).ckpt, playable.train_iter)
    return replace(playable, env=config.env, source_dir=config.source_dir, seed=config.seed)


def evaluated_at(config: ExperimentConfig, ckpt: Path, train_iter: int) -> ExperimentConfig:
    """Return the settings of a run whose `env` is the evaluation environment at a checkpoint's train_iter, by the tasks
    in this folder's index.json. A task without arguments in the file is looked up in the config; an unknown task counts
    as the first."""
    try:
        begun = [each for each in CheckpointIndex(ckpt).tasks if each.train_iter <= train_iter]
    except (CheckpointIndexError, OSError):
        begun = []
    if begun and begun[-1].kwargs_json is not None:
        return evaluated(on_task(config, begun[-1].kwargs_json))
    stage = stage_named(config, begun[-1].task) if begun else 0
    return evaluated(on_task(config, kwargs_of_stage(config, stage)))


def exported_playable(path: Path, *, trust_code: bool = False, search: bool = True) -> Playable:
    """Load the policy of a model/ folder, or of an exported ONNX file. Such a policy acts without a search, so
    `search=False` is refused. A path of another user needs `trust_code`: a model is a program, and the environment of
    both is code. Raises CheckpointError and NoOnnxError."""
    onnx = is_onnx(path)
    source = path if onnx else path / MODEL
    if not search:
        raise CheckpointError(f"{source} acts without a search, so there is none to leave out")
    distrusted = distrusted_file(path, description_of(path)) if onnx else distrusted_model(path)
    if distrusted is not None and not trust_code:
        raise CheckpointError(distrusted)
    actor = onnx_actor(path) if onnx else model_actor(path)
    info = actor.info
    try:
        env = EnvConfig.model_validate(info.env)
    except ValidationError as error:
        raise CheckpointError(f"{source}: its environment does not fit this Remuda: {error}") from error
    return Playable(
        source=source,
        actor=actor,
        observation=info.observation,
        action=info.action,
        train_iter=info.train_iter,
        env_step=info.env_step,
        env=env,
        source_dir=info.source_dir,
        seed=info.seed,
        exploration=info.exploration,
        least_exploration=info.exploration,
    )


class NewestPolicy:
    """Finds newer policies: in the policy file of a parallel run, and among checkpoints."""

    def __init__(self, run: RunFolder, *, trust_code: bool = False, search: bool = True) -> None:
        """`run`: the run's folder, or a policy's part of the folder. For the other arguments see
        load_checkpoint_policy."""
        self._trust_code, self._search = trust_code, search
        self._run = run
        self._train_iter = -1
        """train_iter of the newest policy so far."""
        self._published: PolicyRef | None = None
        self._trained: TrainedPolicy | None = None

    def newer(self) -> Playable | None:
        """Return the newest policy; None if it was returned before. Raises CheckpointIndexError, CheckpointError,
        ConfigError."""
        last = CheckpointIndex(self._run.ckpt).last
        if last is None:
            return None  # the first thing a run saves; before it nobody knows what a policy file is of
        playable = self._from_policy_file(last) or self._from_checkpoint(last)
        return None if playable is None else of_run(playable, self._run.root)

    def _from_policy_file(self, last: CheckpointRecord) -> Playable | None:
        path = self._policy_file()
        if path is None:
            return None
        try:
            published = load(path, newer_than=self._published)
        except PolicyFileError:
            return None  # it is gone; the next search may find another
        if published is None or published.ref.train_iter <= max(self._train_iter, last.train_iter):
            return None
        trained = self._trained or self._loaded(last)
        if trained is None:
            return None
        trained.policy.load_state(published.state)
        self._trained, self._published, self._train_iter = trained, published.ref, published.ref.train_iter
        return replace(trained.playable(path), train_iter=self._train_iter, env_step=None)

    def _from_checkpoint(self, last: CheckpointRecord) -> Playable | None:
        if last.train_iter <= self._train_iter:
            return None
        trained = self._loaded(last)
        if trained is None:
            return None
        self._trained, self._train_iter = trained, last.train_iter
        return trained.playable(self._run.ckpt / last.file)

    def _loaded(self, record: CheckpointRecord) -> TrainedPolicy | None:
        path = self._run.ckpt / record.file
        try:
            return load_checkpoint_policy(
                path, run_dir=self._run.root, trust_code=self._trust_code, search=self._search
            )
        except CheckpointError:
            if path.exists():
                raise
            return None  # pruned at this moment: there is a newer one

    def _policy_file(self) -> Path | None:
        """The policy file of the last coordinator; None without a policy file."""
        found: list[tuple[int, Path]] = []
        for path in self._run.policy.glob("policy_*"):
            if path.suffix != ".lock":
                with suppress(FileNotFoundError):  # it was removed after it was listed
                    found.append((path.stat().st_mtime_ns, path))
        return max(found)[1] if found else None
