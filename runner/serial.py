"""Serial mode: one experiment in this process, from the config to the finished run folder."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from remuda.collector.build import make_rollout
from remuda.config.dump import write_configs
from remuda.config.exits import NoExit
from remuda.config.load import Origin
from remuda.config.schema import ExperimentConfig
from remuda.environments.record import record_environment
from remuda.environments.vectors import Vector, make_vector, single_spaces
from remuda.evaluator.checkpoint_player import CheckpointPlayer
from remuda.learner.checkpoint import CheckpointError, CheckpointState, restore_rngs
from remuda.learner.outputs import LearnerOutputs
from remuda.learner.precision import settle_precision
from remuda.learner.start import continue_from, new_algorithm, take_weights
from remuda.logbook.book import Logbook, serial_logbook
from remuda.logbook.row_sinks import settings_of
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Algorithm, Policy
from remuda.policy.row_plan import row_plan
from remuda.runner.checkpoint_journal import replay_of
from remuda.runner.components import EXPLORATION, Components, RunHooks, StopRequest
from remuda.runner.loop import SerialLoop
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import OnExists, prepare
from remuda.storage.git import record_git
from remuda.storage.ownership import Ownership
from remuda.storage.run_folder import RunFolder
from remuda.training.commander.evaluation import BestCheckpoint
from remuda.training.journal import open_or_begin
from remuda.training.logbooks import open_logbook
from remuda.training.recovery import catch_up, resume_point, show_again
from remuda.training.resume_point import ResumePoint
from remuda.wire.messages import CheckpointRecord, Counters, ExperimentStatus
from remuda.worker.affinity import settle_alone
from remuda.worker.threads import bound_threads


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    reason: str
    """stop_value, max_env_steps, max_train_iters, max_wall_s, stopped; or a sentence naming what failed."""
    explanation: str
    """For people: which condition, its value and its bound."""
    failed: bool
    counters: Counters
    best: BestCheckpoint | None
    run_dir: Path


@dataclass(frozen=True)
class Start:
    """Where the run's files go."""

    run_dir: Path
    on_exists: OnExists = "error"
    provenance: Mapping[str, Origin] | None = None
    """Where each setting came from, for formatted_total_config.py."""


@dataclass(frozen=True)
class _Built:
    """The parts of a run; made before anything is written."""

    said: Sequence[str]
    """Lines about what was chosen, for the log, which is opened later."""
    vector: Vector
    player: CheckpointPlayer
    algorithm: Algorithm
    policy: Policy


@dataclass(frozen=True)
class _Continued:
    state: CheckpointState
    record: CheckpointRecord
    warnings: list[str]


def run(
    config: ExperimentConfig,
    start: Start,
    *,
    stop: StopRequest,
    on_progress: Callable[[ExperimentStatus], None] = lambda status: None,
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Train until a stop condition is reached or `stop` is set; an exception ends it as failed.

    The same config gives the same numbers twice, to the last digit. A resumed run gets back what its newest checkpoint
    had: weights, optimizer, counters, best score, replay with its priorities, and the random states of updates, of
    sampling and of exploration. Environments start new episodes with seeds of their own. What came after that
    checkpoint is void.

    Raises, before anything is written: EnvironmentBuildError, UnsupportedSpaceError, DeviceError, CheckpointError,
    CheckpointIndexError, JournalError, RunFolderError, and FolderOwnedError if another process works on the run.
    """
    bound_threads()
    with NoExit(), ExitStack() as stack:
        built = _build(config, stack)
        weights = None if start.on_exists == "resume" else config.learner.initialize_from
        if weights is not None:
            take_weights(Path(weights), built.algorithm)
        folder = prepare(start.run_dir, start.on_exists, mode="serial", now=datetime.now().astimezone())
        stack.callback(Ownership(folder.owner).release)
        checkpoints = CheckpointIndex(folder.ckpt)
        journal, found, damage = open_or_begin(folder.journal)
        stack.enter_context(closing(journal))
        if found is not None:
            catch_up(checkpoints, found.snapshot.experiment.dispatch.commander)
        continued = _continue(checkpoints, built.algorithm, config) if start.on_exists == "resume" else None
        recovered = None if continued is None else replay_of(found, continued.state.progress)
        logbook = stack.enter_context(_open_logbook(config, folder, continued))
        if recovered is not None:
            show_again(logbook, recovered.snapshot, config)
        resumed = _resumed(checkpoints, continued, logbook)
        if damage is not None:
            logbook.say("commander", damage, level="warning")
        _describe(config, start, folder, built=built, logbook=logbook)
        outputs = LearnerOutputs(folder, config, logbook)
        outputs.begin(built.algorithm)
        if weights is not None:
            logbook.say("learner", f"loaded weights {weights}")
        if continued is not None:
            outputs.loaded(folder.ckpt / continued.record.file, continued.warnings)
        settle_precision(config, built.algorithm, timed=False, say=partial(logbook.say, "learner"))
        timers, generation = Timers(), 0 if resumed is None else resumed.generation
        rollout = make_rollout(
            config, built.vector, built.policy, index=0, collectors=1, generation=generation, clock=clock, timers=timers
        )
        if continued is not None and EXPLORATION in continued.state.rngs:
            restore_rngs(continued.state, {EXPLORATION: rollout.rng})
        components = Components(
            config, folder, logbook, built.algorithm, rollout, built.player, outputs, checkpoints, journal, timers
        )
        if continued is not None and recovered is None:
            text = f"no replay was kept with {continued.record.file}: it starts empty"
            logbook.say("commander", text, level="warning")
            journal.clear()
        return _run_to_the_end(SerialLoop(components, RunHooks(stop, on_progress, clock), resumed, recovered), folder)


def _build(config: ExperimentConfig, stack: ExitStack) -> _Built:
    said = [settle_alone(config)]
    env, num_envs = config.env, config.env.num_envs
    vector = make_vector(env, num_envs=num_envs, source_dir=config.source_dir, chosen=said.append)
    stack.enter_context(closing(vector))
    num_players = min(2 * num_envs, config.evaluator.episodes)  # a few more need no second turn
    player = stack.enter_context(closing(CheckpointPlayer(config, num_envs=num_players)))
    algorithm = new_algorithm(config, *single_spaces(vector))
    policy = make_policy(config, algorithm.observation, algorithm.action, device=config.collector.device)
    return _Built(said, vector, player, algorithm, policy)


def _run_to_the_end(loop: SerialLoop, folder: RunFolder) -> RunResult:
    failed = False
    try:
        with NoExit():
            loop.work()
            end = loop.finish()
    except Exception as error:  # the user's environment may raise anything
        failed = True
        end = loop.fail(error, traceback.format_exc())
    return RunResult(end.reason, end.explanation, failed, loop.counters(), loop.best, folder.root)


def _continue(checkpoints: CheckpointIndex, algorithm: Algorithm, config: ExperimentConfig) -> _Continued:
    record = checkpoints.last
    if record is None:
        raise CheckpointError(
            f"{checkpoints.folder.parent} cannot be resumed: it has no checkpoint yet; start over with --force"
        )
    state, warnings = continue_from(checkpoints.folder / record.file, algorithm, config)
    return _Continued(state, record, warnings)


def _open_logbook(config: ExperimentConfig, folder: RunFolder, continued: _Continued | None) -> Logbook:
    resumed = None if continued is None else continued.state.progress.counters
    logbook = open_logbook(serial_logbook, folder, config, resumed)
    logbook.describe(settings_of(config), train_iter=0 if resumed is None else resumed.train_iter)
    return logbook


def _resumed(checkpoints: CheckpointIndex, continued: _Continued | None, logbook: Logbook) -> ResumePoint | None:
    if continued is None:
        return None
    progress = continued.state.progress
    return resume_point(continued.record, progress.counters, progress.policy, checkpoints, logbook)


def _describe(config: ExperimentConfig, start: Start, folder: RunFolder, *, built: _Built, logbook: Logbook) -> None:
    """Write the configs and the state of the git repository."""
    changed = write_configs(folder.root, config, start.provenance or {})
    logbook.say("collector", f"n_sample: {row_plan(config, collectors=1).chunk_slots}, env_num: {config.env.num_envs}")
    warnings = (changed, record_git(folder.root, Path.cwd()), *record_environment(folder, config, built.vector))
    for warning in (*warnings, *built.player.films.take_warnings()):
        if warning is not None:
            logbook.say("commander", warning, level="warning")
    for line in built.said:
        logbook.say("collector", line)
