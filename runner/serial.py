"""Serial mode: one experiment in this process, from the config to the finished run folder."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import structs

from remuda.collector.rollout import Collects
from remuda.config.dump import write_configs
from remuda.config.errors import NoExit
from remuda.config.load import Origin
from remuda.config.schema import ExperimentConfig
from remuda.coordinator.experiment.experiment import Experiment
from remuda.coordinator.experiment.policy import PolicyTraining
from remuda.environments.copies import agents_of
from remuda.learner.callback import Callback
from remuda.learner.callbacks import CallbackLike, make_callbacks
from remuda.learner.checkpoint import CheckpointState, Progress, continue_from, restore_rngs, take_weights
from remuda.learner.demonstrations import imitate
from remuda.learner.outputs import LearnerOutputs
from remuda.learner.precision import choose_precision
from remuda.logbook.book import Logbook
from remuda.logbook.role_logbooks import serial_logbook
from remuda.logbook.row_sinks import settings_of
from remuda.logbook.timers import Timers
from remuda.policy.base import Algorithm
from remuda.policy.files.checkpoint_file import CheckpointError
from remuda.policy.row_plan import row_plan
from remuda.runner.building import Built, BuiltPolicy, Member, build
from remuda.runner.learner import EXPLORATION
from remuda.runner.link import SERIAL_WORKER
from remuda.runner.loop import RunHooks, SerialLoop, StopRequest
from remuda.storage.checkpoint_index import CheckpointIndex
from remuda.storage.existing_folder import OnExists, prepare
from remuda.storage.git import record_git
from remuda.storage.lock import Ownership
from remuda.storage.run_folder import PolicyFolder, RunFolder
from remuda.training.commander.evaluation import BestCheckpoint
from remuda.training.effects import open_logbook
from remuda.training.journal import RunJournal, open_for_policies
from remuda.training.journal_entry import Recovered, ResumePoint
from remuda.training.recovery import catch_up, check_rows, keep_counted, resume_point, show_again, task_at
from remuda.training.run_snapshot import Identity
from remuda.wire.messages import CheckpointRecord, Counters, ExperimentStatus
from remuda.worker.process import bound_threads


@dataclass(frozen=True)
class PolicyResult:
    """End of one of several policies."""

    counters: Counters
    best: BestCheckpoint | None


@dataclass(frozen=True)
class RunResult:
    """End of a run."""

    reason: str
    """stop_value, max_env_steps, max_train_iters, max_wall_s, stopped; `callback <Class>: …`; or a sentence naming the
    failure."""
    explanation: str
    """Condition, value and bound, for people."""
    failed: bool
    counters: Counters
    """With several policies updates, episodes and versions are sums."""
    best: BestCheckpoint | None
    """None with several policies, which have a best checkpoint each."""
    run_dir: Path
    status: ExperimentStatus
    """The last status."""
    policies: Mapping[str, PolicyResult] = field(default_factory=dict[str, PolicyResult])
    """Results of several policies, by name."""


@dataclass(frozen=True)
class Start:
    """Run folder, and further arguments of a run."""

    run_dir: Path
    on_exists: OnExists = "error"
    provenance: Mapping[str, Origin] | None = None
    """Source of each setting, for formatted_total_config.py."""
    notes: Sequence[str] = ()
    """Lines for the collector's log, about measurements for automatic settings."""
    callbacks: Sequence[CallbackLike] = ()
    """Callbacks besides the config's; classes are instantiated for each policy."""


@dataclass(frozen=True)
class _Continued:
    state: CheckpointState
    record: CheckpointRecord
    warnings: list[str]


@dataclass(frozen=True)
class _PolicyFiles:
    """A policy, and the content of its part of the run folder."""

    built: BuiltPolicy
    folder: RunFolder
    checkpoints: CheckpointIndex
    journal: RunJournal
    continued: _Continued | None
    recovered: Recovered | None

    @property
    def counters(self) -> Counters | None:
        """Start of a resumed run."""
        return None if self.continued is None else counters_of(self.recovered, self.continued.state.progress)


def run(
    config: ExperimentConfig,
    start: Start,
    *,
    stop: StopRequest,
    on_progress: Callable[[ExperimentStatus], None] = lambda status: None,
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Train until a stop condition is reached or `stop` is set; an exception ends the run as failed.

    Equal configs give equal numbers, to the last digit. A resumed run continues with the state of its newest
    checkpoint: weights, optimizer, counters, best score, replay with its priorities, and the random states of updates,
    sampling and exploration. Environments start new episodes with seeds of their own. Later work is discarded. Several
    policies continue from the same moment.

    Raises, before anything is written: UserCodeError, EnvironmentBuildError, UnsupportedSpaceError, DeviceError,
    CheckpointError, CheckpointIndexError, DatasetError, JournalError, RunFolderError, and FolderOwnedError if another
    process works on the run.
    """
    bound_threads()
    with NoExit(), ExitStack() as stack:
        built = build(config, stack)
        begun = [] if start.on_exists == "resume" else _take_weights(built.policies)
        callbacks = [make_callbacks(one.config, start.callbacks, policy=one.name) for one in built.policies]
        names = [one.name for one in built.policies if one.name]
        now = datetime.now().astimezone()
        folder = prepare(start.run_dir, start.on_exists, mode="serial", now=now, policies=names)
        stack.callback(Ownership(folder.owner).release)
        resumes, policies = start.on_exists == "resume", {one.name: one.config for one in built.policies}
        kept = check_rows(folder, policies) if resumes else {}
        journals, damage = open_for_policies(folder.journal, [one.name for one in built.policies])
        stack.enter_context(closing(journals[0][0]))
        found = [
            _find(one, folder, *known, resumes=resumes) for one, known in zip(built.policies, journals, strict=True)
        ]
        _continue_together(found)
        if resumes:
            keep_counted(folder, journals[0][1])
        experiment, members = _open(config, found, callbacks, clock(), stack)
        built.warnings.logbook = members[0].logbook
        if damage is not None:
            members[0].logbook.say("commander", damage, level="warning")
        _describe(config, start, folder, built=built, members=members)
        for one, member in zip(found, members, strict=True):
            _begin(one, member, kept.get(one.built.name))
        for line in begun:
            members[0].logbook.say("learner", line)
        timers = Timers()
        generation = max((each.resumed.generation for each in members if each.resumed is not None), default=0)
        acting = [one.acting for one in built.policies]
        collector = built.environments.rollout(
            acting, index=0, generation=generation, clock=clock, timers=timers, steps_folder=folder.steps
        )
        _continue_exploration(found, collector)
        loop = SerialLoop(experiment, members, collector, built, RunHooks(stop, on_progress, clock), timers)
        return _run_to_the_end(loop, folder, {one.built.name: one.training for one in members})


def _take_weights(policies: Sequence[BuiltPolicy]) -> list[str]:
    """Set the first weights of new policies; return a log line for each policy trained by imitation."""
    lines: list[str] = []
    for one in policies:
        weights = one.config.learner.initialize_from
        if weights is not None:
            take_weights(Path(weights), one.algorithm)
        if (line := imitate(one.config, one.algorithm)) is not None:
            lines.append(line)
    return lines


def _find(
    built: BuiltPolicy, folder: RunFolder, journal: RunJournal, known: Recovered | None, *, resumes: bool
) -> _PolicyFiles:
    own = PolicyFolder(folder.root, built.name) if built.name else folder
    checkpoints = CheckpointIndex(own.ckpt)
    if known is not None:
        catch_up(checkpoints, known.snapshot.experiment.dispatch.commander)
    continued = _continue(checkpoints, built.algorithm, built.config) if resumes else None
    recovered = None if continued is None else replay_of(known, continued.state.progress)
    return _PolicyFiles(built, own, checkpoints, journal, continued, recovered)


def replay_of(found: Recovered | None, progress: Progress) -> Recovered | None:
    """Return the committed replay, if it belongs to the checkpoint.

    The replay may be newer than the checkpoint without updates in between: policies are committed together, also if
    only another policy has learned.
    """
    if found is None:
        return None
    saved, known = progress.counters, found.snapshot.counters
    belongs = known.train_iter == saved.train_iter and known.env_step >= saved.env_step
    return found if belongs and known.episode >= saved.episode else None


def counters_of(recovered: Recovered | None, progress: Progress) -> Counters:
    """Return the counters of a run continued from a checkpoint."""
    if recovered is None:
        return progress.counters
    saved, known = progress.counters, recovered.snapshot.counters
    return structs.replace(known, policy_version=saved.policy_version, wall_s=saved.wall_s)


def _continue_together(found: Sequence[_PolicyFiles]) -> None:
    """Restore torch's generator, shared by all policies, from the newest checkpoint."""
    states = [one.continued.state for one in found if one.continued is not None]
    if len(states) > 1:
        restore_rngs(max(states, key=lambda state: state.progress.counters.env_step), {})


def _open(
    config: ExperimentConfig,
    found: Sequence[_PolicyFiles],
    callbacks: Sequence[Sequence[Callback]],
    now_s: float,
    stack: ExitStack,
) -> tuple[Experiment, list[Member]]:
    """Open the logs, and make the experiment."""
    agents = agents_of(config.env, source_dir=config.source_dir) if config.env.kind == "pettingzoo" else ()
    env = config.env.model_copy(update={"agents": tuple(agents)})
    alone = {name: getattr(config, name).model_copy(update={"count": 0}) for name in ("reanalyzer", "inference")}
    known = config.model_copy(update={"env": env, **alone})
    run_dir = str(found[0].folder.root)
    identities = [
        Identity(SERIAL_WORKER, config.name, run_dir, "", priority=0, submitted=0, policy=one.built.name)
        for one in found
    ]
    logs = [_open_logbook(one, stack) for one in found]
    experiment = Experiment(identities, known, now_s, [resumed for _, resumed in logs], serial=True)
    members = [
        Member(
            one.built,
            one.folder,
            logbook,
            LearnerOutputs(one.folder, one.built.config, logbook),
            one.checkpoints,
            one.journal,
            training,
            resumed,
            one.recovered,
            own_callbacks,
        )
        for one, (logbook, resumed), training, own_callbacks in zip(
            found, logs, experiment.policies, callbacks, strict=True
        )
    ]
    return experiment, members


def _open_logbook(found: _PolicyFiles, stack: ExitStack) -> tuple[Logbook, ResumePoint | None]:
    config, counters = found.built.config, found.counters
    logbook = stack.enter_context(open_logbook(serial_logbook, found.folder, config, counters))
    logbook.describe(settings_of(config), train_iter=0 if counters is None else counters.train_iter)
    if found.recovered is not None:
        show_again(logbook, found.recovered.snapshot, config)
    if found.continued is None or counters is None:
        return logbook, None
    published = found.continued.state.progress.policy
    if found.recovered is not None:  # its epoch may be newer: chunks are named by it
        published = max(published, found.recovered.snapshot.experiment.flow.policy)
    record, state = found.continued.record, task_at(found.recovered)
    return logbook, resume_point(record, counters, published, found.checkpoints, logbook, config=config, state=state)


def _begin(found: _PolicyFiles, member: Member, kept: str | None) -> None:
    """Log the network, and the source of its weights and of the replay; `kept`: a warning about stored rows."""
    logbook, continued = member.logbook, found.continued
    config, algorithm = found.built.config, found.built.algorithm
    member.outputs.begin(algorithm)
    if continued is not None:
        member.outputs.loaded(found.folder.ckpt / continued.record.file, continued.warnings)
    elif config.learner.initialize_from is not None:
        logbook.say("learner", f"loaded weights {Path(config.learner.initialize_from)}")
    choose_precision(config, algorithm, timed=False, say=partial(logbook.say, "learner"))
    if continued is not None and found.recovered is None:
        text = f"no replay was kept with {continued.record.file}: it starts empty"
        logbook.say("commander", text, level="warning")
        found.journal.clear()
    elif kept is not None:
        logbook.say("commander", kept, level="warning")


def _continue_exploration(found: Sequence[_PolicyFiles], collector: Collects) -> None:
    """Actions are drawn from where the newest checkpoint was."""
    states = [one.continued.state for one in found if one.continued is not None]
    known = [state for state in states if EXPLORATION in state.rngs]
    if known:
        newest = max(known, key=lambda state: state.progress.counters.env_step)
        restore_rngs(newest, {EXPLORATION: collector.rng})


def _run_to_the_end(loop: SerialLoop, folder: RunFolder, policies: Mapping[str, PolicyTraining]) -> RunResult:
    failed = False
    try:
        with NoExit():
            end = loop.work()
    except Exception as error:  # the user's environment may raise anything
        failed = True
        end = loop.fail(error, traceback.format_exc())
    failed = failed or end.state == "failed"  # by a callback
    counters = loop.counters()
    results = {name: PolicyResult(own.counters(0.0), own.commander.best) for name, own in policies.items()}
    best = results.pop("").best if "" in results else None
    return RunResult(end.reason, end.explanation, failed, counters, best, folder.root, loop.status(), results)


def _continue(checkpoints: CheckpointIndex, algorithm: Algorithm, config: ExperimentConfig) -> _Continued:
    record = checkpoints.last
    if record is None:
        raise CheckpointError(
            f"{checkpoints.folder.parent} cannot be resumed: it has no checkpoint yet; start over with --force"
        )
    state, warnings = continue_from(checkpoints.folder / record.file, algorithm, config, recorded=record.sha256)
    return _Continued(state, record, warnings)


def _describe(
    config: ExperimentConfig, start: Start, folder: RunFolder, *, built: Built, members: Sequence[Member]
) -> None:
    """Write the configs, the environment and the state of the git repository."""
    changed = write_configs(folder.root, config, start.provenance or {})
    warnings = (changed, record_git(folder.root, Path.cwd()), *built.describe(folder))
    for one in members:
        own = one.built.config
        slots = row_plan(own, collectors=1).chunk_slots
        one.logbook.say("collector", f"n_sample: {slots}, env_num: {own.env.num_envs}")
        for warning in warnings:
            if warning is not None:
                one.logbook.say("commander", warning, level="warning")
        for line in (*start.notes, *built.choices):
            one.logbook.say("collector", line)
