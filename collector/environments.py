"""The environments under a collector's lease: the rollout for its policies, and the description in the run folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from pydantic import JsonValue

from remuda.buffer.chunk import Columns
from remuda.buffer.episodes import DatasetError
from remuda.collector.collected import Collected
from remuda.collector.opponents import LeagueLanes, OpponentLanes
from remuda.collector.recorder import Behavior, PolicySetup
from remuda.collector.rollout import Collects, Rollout
from remuda.collector.rows import NStepRows, Rows, SegmentRows, SequenceRows, UnrollRows
from remuda.collector.steps import StepsWriter
from remuda.config.current import on_task, without_secrets
from remuda.config.declaration import RowShape, Segments, Sequences, Steps, Unrolls
from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.config.plain import masked
from remuda.config.schema import ExperimentConfig
from remuda.environments.copies import make_copies
from remuda.environments.lanes import Copies
from remuda.environments.make import make_single, require_same
from remuda.environments.seeding import environment_seeds, generator, incarnation_at
from remuda.environments.spaces import Space, packs, space_structure
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import declaration
from remuda.policy.base import Policy
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.atomic import write_text
from remuda.storage.env_files import pickle_environment
from remuda.storage.run_folder import RunFolder
from remuda.training.replay.dataset import dataset_rows
from remuda.wire.messages import ChunkId, Task

Spaces = tuple[Space, Space]
"""Of observations and of actions."""
Log = Callable[[str], None]


class Environments:
    """Copies of a run's environment at the present task. Policies are in the order of their names."""

    def __init__(
        self,
        config: ExperimentConfig,
        policies: Mapping[str, ExperimentConfig],
        *,
        collectors: int,
        broke: Log,
        remark: Log | None = None,
    ) -> None:
        """`policies` are the settings of each policy, by name; `collectors` work for the run; `broke` and `remark`: see
        make_copies. Raises EnvironmentBuildError, and DatasetError about collector.dataset."""
        self._config, self._policies, self._collectors = config, policies, collectors
        self._broke, self._remark = broke, remark
        choices: list[str] = []
        self._copies = self._make(config, choices.append)
        self.said = " ".join(choices)
        """For the log: how the copies are stepped."""
        self._rollout: Collects | None = None
        self._steps: StepsWriter | None = None
        self._index = self._generation = 0
        self.opponents: OpponentLanes | None = None
        """Lanes of checkpoints, in self-play."""
        if config.self_play.share:
            lanes = OpponentLanes if config.self_play.league is None else LeagueLanes
            self.opponents = lanes(self._copies, policies)
        dataset = config.collector.dataset
        self._stored = None if dataset is None else stored_rows(config, dataset, *self.spaces[0])

    @property
    def spaces(self) -> Sequence[Spaces]:
        """Observation and action space of each policy."""
        return [(lanes.group.observation, lanes.group.action) for lanes in self._copies.lanes]

    def describe(self, folder: RunFolder) -> Sequence[str]:
        """Write the description of the environment into the run folder; returns warnings."""
        return record_environment(folder, self._config, self._copies, list(self._policies))

    def rollout(
        self,
        policies: Sequence[Policy],
        *,
        index: int,
        generation: int,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
        timers: Timers,
        steps_folder: Path | None = None,
    ) -> Collects:
        """The rollout of these policies, or the stored steps; called once. See make_rollout. All steps are kept in
        `steps_folder`, except stored steps, and those of self-play: actions of older policies are not known there."""
        self._index, self._generation = index, generation
        if self._stored is not None:
            self._rollout = StoredSteps(self._stored, np.random.default_rng(self._config.seed))
            return self._rollout
        if steps_folder is not None and self._config.log.steps and not self._config.self_play.share:
            self._steps = StepsWriter(steps_folder, index=index, generation=generation, warn=self._broke)
        self._rollout = make_rollout(
            self._config,
            self._copies,
            list(zip(self._policies.values(), policies, strict=True)),
            index=index,
            collectors=self._collectors,
            opponents=self.opponents,
            generation=generation,
            clock=clock,
            progress=progress,
            timers=timers,
            keeps_steps=self._steps is not None,
        )
        self._begin_steps(0, "")
        return self._rollout

    def keep_steps(self, chunk: ChunkId, collected: Sequence[Collected]) -> None:
        """Keep the steps of a chunk, by `flush_steps` at the latest."""
        slots = [one.slots for one in collected if one.slots is not None]
        if self._steps is not None and slots:
            version = collected[0].policy.version
            self._steps.add(chunk.worker, chunk.incarnation, chunk.sequence, version, slots)

    def flush_steps(self) -> None:
        """Write the steps kept so far."""
        if self._steps is not None:
            self._steps.flush()

    def _begin_steps(self, task: int, kwargs_json: str) -> None:
        if self._steps is not None and isinstance(self._rollout, Rollout):
            lanes = dict(zip(self._policies, self._copies.lanes, strict=True))
            known = without_secrets(kwargs_json)
            self._steps.begin(lanes, self._rollout.seen_dtypes, task=task, kwargs_json=known)

    def begin(self, task: Task) -> None:
        """Continue at this task: before its next chunk the rollout abandons its episodes and starts in new copies.
        Raises EnvironmentBuildError, also if the new copies do not fit the policies."""
        assert self._rollout is not None, "somebody steps them"
        fit = self.spaces
        self._copies.close()
        config = on_task(self._config, task.kwargs_json)
        self._copies = self._make(config, lambda why: None)
        for own, new in zip(fit, self.spaces, strict=True):
            require_same(f"task {task.number}", own, new)
        incarnation = incarnation_at(self._generation, task.number)
        self._rollout.move(self._copies, seeds_of(config, self._index, incarnation))
        self._begin_steps(task.number, task.kwargs_json)

    def close(self) -> None:
        """Close the copies, and the file of steps."""
        try:
            self._copies.close()
        finally:
            if self._steps is not None:
                self._steps.close()

    def _make(self, config: ExperimentConfig, chosen: Log) -> Copies:
        return make_copies(
            config.env,
            {name: own.env.agents for name, own in self._policies.items()},
            num_envs=config.env.num_envs,
            source_dir=config.source_dir,
            sharers=self._collectors,
            chosen=chosen,
            broke=self._broke,
            remark=self._remark,
        )


def make_rollout(
    config: ExperimentConfig,
    copies: Copies,
    policies: Sequence[tuple[ExperimentConfig, Policy]],
    *,
    index: int,
    collectors: int,
    opponents: OpponentLanes | None = None,
    generation: int,
    clock: Callable[[], float] = time.monotonic,
    progress: Callable[[int], None] = lambda env_steps: None,
    timers: Timers | None = None,
    keeps_steps: bool = False,
) -> Rollout:
    """Build the rollout. `config` belongs to the run. `policies` are in the order of the groups, each with its
    settings. With `keeps_steps` its chunks have all steps.

    `index` (of the `collectors`) and `generation` (earlier holders of this index) choose the random numbers.
    """
    setups: list[PolicySetup] = []
    for own, policy in policies:
        declared = declaration(own)
        policy.take_place(index * own.env.num_envs, collectors * own.env.num_envs)
        rows = _rows(declared.rows)
        setups.append(
            PolicySetup(
                policy=policy,
                rows=rows,
                metrics=declared.collected,
                episode_info=own.env.episode_info,
                keeps_steps=keeps_steps,
            )
        )
    return Rollout(
        copies,
        setups,
        rng=generator(config.seed, "collector", index, "exploration", incarnation=generation),
        seeds=seeds_of(config, index, generation),
        opponents=opponents,
        clock=clock,
        progress=progress,
        timers=timers,
    )


def seeds_of(config: ExperimentConfig, index: int, incarnation: int) -> list[int]:
    """Return the seed of the first reset of each copy of a collector; `incarnation`: see incarnation_at."""
    return environment_seeds(config.seed, "collector", index, config.env.num_envs, incarnation=incarnation)


def _rows(shape: RowShape) -> Rows:
    match shape:
        case Steps() as rows:
            return NStepRows(n_step=rows.n_step, discount=rows.discount)
        case Segments() as rows:
            return SegmentRows(discount=rows.discount)
        case Unrolls() as rows:
            return UnrollRows(unroll_steps=rows.unroll_steps, n_step=rows.n_step, discount=rows.discount)
        case Sequences() as rows:
            return SequenceRows(slots=rows.slots, period_slots=rows.period_slots, discount=rows.discount)


class StoredSteps:
    """Hands in all rows of a dataset as one chunk, without a step of an environment. Has the methods of a Rollout."""

    def __init__(self, columns: Columns, rng: np.random.Generator) -> None:
        self.rng = rng
        """Draws nothing."""
        self._columns: Columns | None = columns

    def collect(
        self, env_steps: int, behaviors: Sequence[Behavior], *, longest_s: float | None = None
    ) -> list[Collected]:
        """Return the rows the first time, and nothing later."""
        columns, self._columns = self._columns, None
        return [] if columns is None else [Collected(columns, 0, behaviors[0].policy, [], [], 0.0)]

    def move(self, copies: Copies, seeds: Sequence[int]) -> None:
        """Do nothing: a task concerns evaluations alone."""

    def flush(self) -> list[Collected]:
        """Nothing waits for later steps."""
        return []


def stored_rows(config: ExperimentConfig, dataset: str, observation: Space, action: Space) -> Columns:
    """Read the rows of an offline run, in an environment of these spaces. Raises as dataset_rows, and DatasetError if
    the buffer is too small."""
    columns = dataset_rows(config, dataset, ObservationSpec.of(observation), ActionSpec.of(action))
    steps, capacity = len(columns["reward"]), config.buffer.capacity
    if steps > capacity:
        raise DatasetError(
            f"{dataset} has {steps} steps, and the buffer holds {capacity}: set buffer.capacity to {steps}"
        )
    return columns


def record_environment(
    run: RunFolder, config: ExperimentConfig, copies: Copies, policies: Sequence[str] = ("",)
) -> list[str]:
    """Write both files; return warnings for the log about failures.

    A failure of the disk or of the environment's code does not end the run. The pickled environment is a new single
    environment. Environments with several agents are not pickled.
    """
    warnings = [_written(run, config.env, copies, policies)]
    if config.env.kind != "pettingzoo":
        warnings.append(_keep_copy(run, config))
    return [warning for warning in warnings if warning is not None]


def environment_spec(env: EnvConfig, copies: Copies, policies: Sequence[str] = ("",)) -> dict[str, JsonValue]:
    """Return the description of the environment, sufficient to rebuild it, as JSON (finite numbers only).

    `vectorization` is the chosen value, also for `auto`; `autoreset` names gymnasium's mode. Several agents have
    separate spaces, and the name of the acting policy (empty if all agents share a policy).
    """
    spec: dict[str, JsonValue] = {
        "id": env.id,
        "make": env.make,
        "kwargs": masked(dict(env.kwargs)),
        "max_episode_steps": env.max_episode_steps,
        "num_envs": copies.num_envs,
        "vectorization": copies.vectorization,
        "autoreset": AutoresetMode.NEXT_STEP.value,
    }
    groups = [lanes.group for lanes in copies.lanes]
    if env.kind == "pettingzoo":
        named = [(agent, name, group) for name, group in zip(policies, groups, strict=True) for agent in group.agents]
        spec["agents"] = {
            agent: {"policy": name, **_described(group.observation, group.action)} for agent, name, group in named
        }
    else:
        spec |= _described(groups[0].observation, groups[0].action)
    return spec | {"gymnasium_version": gymnasium.__version__}


def _described(observation: Space, action: Space) -> dict[str, JsonValue]:
    return {"observation_space": _described_space(observation), "action_space": _described_space(action)}


def _described_space(space: Space) -> dict[str, JsonValue]:
    described: dict[str, JsonValue] = {"text": str(space), **space_structure(space)}
    if packs(space):
        described["parts"] = [cast("JsonValue", asdict(part)) for part in space.parts]
        described["unused_parts"] = list(space.unused)
    return described


def _written(run: RunFolder, env: EnvConfig, copies: Copies, policies: Sequence[str]) -> str | None:
    text = json.dumps(environment_spec(env, copies, policies), indent=2) + "\n"
    try:
        write_text(run.env_spec, text, durable=False)
    except OSError as error:
        return f"{run.env_spec.name} was not written ({error}). Nothing else is affected: config.json has its settings."
    return None


def _keep_copy(run: RunFolder, config: ExperimentConfig) -> str | None:
    try:
        with NoExit(), closing(make_single(config.env, source_dir=config.source_dir)) as env:
            return pickle_environment(run.vars_pkl, env)
    except Exception as error:  # anything that the environment's own code raises
        return (
            f"{run.vars_pkl.name} was not written, since an environment for it could not be built, or not be closed "
            f"({type(error).__name__}: {error}). Nothing else is affected."
        )
