"""A collector's lease: steps the environments, writes and announces chunks, within its credit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace

from remuda.collector.asking import InferenceClient, LeaseEndsError
from remuda.collector.collected import Collected, CollectSummary
from remuda.collector.environments import Environments
from remuda.collector.recorder import Behavior
from remuda.config.schema import ExperimentConfig
from remuda.environments.assignment import configs_of_policies
from remuda.logbook.episode_reports import CollectReport
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import make_policy
from remuda.policy.base import Policy
from remuda.policy.files.policy_file import LoadedPolicy, PolicyFileError
from remuda.policy.row_plan import joint_plan, row_plan
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.wire.messages import (
    Acting,
    AnyMessage,
    Assign,
    ChunkAccepted,
    ChunkId,
    ChunkReady,
    CollectorReport,
    Credit,
    InferenceServers,
    Opponents,
    PolicyAvailable,
    PolicyRef,
    Registered,
    Task,
)
from remuda.worker.affinity import bind_cores
from remuda.worker.lease_log import LeaseLog
from remuda.worker.link import Link, WorkerIdentity
from remuda.worker.stores.ports import NotNowError, PayloadStore, PolicyStore, RunStores


class ActingPolicy:
    """Loads each new version once, right before acting."""

    def __init__(
        self, policy: Policy, store: PolicyStore, exploration: dict[str, float], warn: Callable[[str], None]
    ) -> None:
        """`warn` gets a text for the log."""
        self._policy, self._store, self._exploration, self._warn = policy, store, exploration, warn
        self._newest = PolicyRef()
        self.acting: PolicyRef | None = None
        """Version in use; None before the first."""
        self._damaged = PolicyRef()
        """Newest version at the time of the last damaged file."""

    def note_newest(self, news: Acting) -> None:
        """Note the newest version and its exploration settings."""
        self._newest = max(self._newest, news.policy)
        if news.exploration:
            self._exploration = news.exploration

    def behavior(self, loading: AbstractContextManager[None]) -> Behavior:
        """Return the behavior for the next chunk. Loads a newer version within `loading`; a damaged file keeps the
        version before. Raises PolicyFileError and NotNowError."""
        if self.acting is None or self._newest > max(self.acting, self._damaged):
            with loading:
                loaded = self._load()
            if loaded is not None:
                self._policy.load_state(loaded.state)
                self.acting = loaded.ref
        assert self.acting is not None, "credit comes only after the first policy was published"
        return Behavior(self._exploration, self.acting)

    def _load(self) -> LoadedPolicy | None:
        try:
            return self._store.load(newer_than=self.acting)
        except PolicyFileError as error:
            if self.acting is None:
                raise
            self._damaged = self._newest
            self._warn(f"keeps the policy of version {self.acting.version}, until there is a sound one: {error}")
            return None


CHUNKS_IN_THE_AIR = 2
"""Most chunks waiting for storage or acknowledgement; beyond, the collector waits."""


@dataclass(frozen=True)
class _PolicyParts:
    """Parts of a policy of the run."""

    acting: ActingPolicy
    payloads: PayloadStore
    summary: CollectSummary


class CollectorWork:
    """Collects for an experiment. A payload stays announced until the coordinator acknowledges it.

    Several policies collect together: a chunk has one payload per policy, all announced and counted at once.
    """

    warnings: Sequence[str] = ()
    """Always empty: warnings go to the collector's own log."""

    def __init__(
        self,
        assign: Assign,
        identity: WorkerIdentity,
        link: Link,
        stores: RunStores,
        *,
        ending: Callable[[], bool] = lambda: False,
    ) -> None:
        """`ending` is true if the process should end."""
        config = ExperimentConfig.model_validate_json(assign.config_json)
        policies = configs_of_policies(config)
        configs = list(policies.values())
        self.timers = Timers()
        self._assign, self._identity, self._link, self._stores = assign, identity, link, stores
        self._plan = joint_plan([row_plan(own) for own in configs])
        self._taken = self._used_credit = 0
        self._credit = assign.credit_env_steps
        self._task, self._newest_task = Task(), assign.task
        """Present task of the environments, and the newest."""
        self._at_hand: list[tuple[ChunkId, Sequence[Collected]]] = []
        """Collected, and not in data/ yet."""
        self._unacknowledged: set[ChunkId] = set()
        self._opponents: Opponents | None = None
        """The newest message about opponents, until it is followed."""
        self._draining = False
        with ExitStack() as opened:
            self._log = log = opened.enter_context(closing(LeaseLog("collector", identity, link, stores)))
            log.say(bind_cores(config, "collector", assign.index))  # before a vector starts processes
            env = Environments(config, policies, collectors=config.collector.count, broke=log.warn)
            self._env = opened.enter_context(closing(env))
            self._inference: InferenceClient | None = None
            if config.shared_inference.workers:
                inference = InferenceClient(link, assign.lease, assign.index, ending, log.warn, self.timers)
                self._inference = opened.enter_context(closing(inference))
            if assign.index == 0:  # one collector describes it for all
                for warning in env.describe(stores.folder):
                    log.warn(warning)
                stores.describe()
            acting = self._make_policies(configs)
            self._policies = self._parts(acting, configs)
            self._ahead = min(own.payloads.ahead for own in self._policies)
            self._rollout = env.rollout(
                acting,
                index=assign.index,
                generation=assign.generation,
                progress=link.progress,
                timers=self.timers,
                steps_folder=stores.steps,
            )
            self._follow_task()
            self._say_who_computes()
            lanes = sum(own.env.num_envs for own in configs)
            of = f"collector {identity.uuid} (index {assign.index}) of {assign.name}"
            log.say(f"{of}: n_sample: {self._plan.chunk_slots}, env_num: {lanes}; {env.said}")
            self._opened = opened.pop_all()

    def handle(self, message: AnyMessage) -> None:
        """Credit, acknowledgements and news of policies."""
        match message:
            case ChunkAccepted():
                if message.chunk not in self._unacknowledged:
                    return  # of an earlier lease
                self._unacknowledged.remove(message.chunk)
                if message.rejected is not None:
                    self._log.warn(f"chunk {message.chunk} was refused: {message.rejected}")
                self._allow(message)
            case Credit():
                self._allow(message)
            case PolicyAvailable():
                self._policies[message.policy_index].acting.note_newest(Acting(message.policy, {}))
            case Opponents():
                self._opponents = message
            case InferenceServers() if self._inference is not None:
                self._inference.note(message)
            case Registered() if self._inference is not None:
                self._inference.join()
            case _:
                pass

    def step(self) -> bool:
        """Collect and announce one chunk, within credit, acknowledgements and space in data/."""
        if self._at_hand:
            self._announce()
        if self._draining or len(self._at_hand) > self._ahead:
            return False
        if self._used_credit >= self._credit:
            self._env.flush_steps()  # while there is time
            self._link.activity("waiting", "waiting for credit")
            return False
        if len(self._unacknowledged) + len(self._at_hand) >= CHUNKS_IN_THE_AIR:
            self._link.activity("waiting", "waiting for acknowledgements")
            return False
        try:
            with self.timers("load policy"):
                behaviors = [
                    own.acting.behavior(self._link.during("preparing", "loading the policy")) for own in self._policies
                ]
                self._follow_opponents()
        except NotNowError as error:
            self._log.waits(error)
            return False
        self._follow_task()
        self._link.activity("working", "collecting")
        try:
            with self.timers("collect"):
                collected = self._collect(behaviors)
        except LeaseEndsError:  # the loop has the reason
            return False
        if not collected:
            self._link.activity("waiting", "the dataset is handed in")
            return False
        with self.timers("hand in"):
            self._hand_in(collected)
        return len(self._at_hand) <= self._ahead

    def drain(self) -> None:
        """Announce the rows waiting for later steps; collect no more."""
        self._draining = True
        self._link.activity("waiting", "waiting for acknowledgements")
        if any(own.acting.acting is None for own in self._policies):
            return
        rest = self._rollout.flush()
        if any(collected.rows for collected in rest):
            self._hand_in(rest)
        self._report_due(last=True)

    @property
    def drained(self) -> bool:
        """True without unfinished or unacknowledged chunks."""
        return self._draining and not self._unacknowledged and not self._at_hand

    @property
    def unstored(self) -> bool:
        """True with chunks on their way to data/. A stored but unannounced chunk counts at the next start of the
        coordinator."""
        return bool(self._at_hand)

    def close(self) -> None:
        """Close environments and logs."""
        if self._at_hand:
            lost = sum(collected[0].env_steps for _, collected in self._at_hand)
            self._log.warn(f"{lost} env steps are lost: they were not in data/ at the end")
        self._opened.close()

    def _make_policies(self, configs: Sequence[ExperimentConfig]) -> list[Policy]:
        return [
            make_policy(
                own,
                ObservationSpec.of(observation),
                ActionSpec.of(action),
                chosen=self._log.say,
                device=own.collector.device,
                shared=None if self._inference is None else self._inference.policy(),
            )
            for own, (observation, action) in zip(configs, self._env.spaces, strict=True)
        ]

    def _parts(self, acting: Sequence[Policy], configs: Sequence[ExperimentConfig]) -> list[_PolicyParts]:
        explorations = [self._assign.exploration, *(other.exploration for other in self._assign.others)]
        explorations += [{}] * (len(configs) - len(explorations))
        parts = zip(acting, configs, explorations, self._stores.of_policies, strict=True)
        return [
            _PolicyParts(
                ActingPolicy(policy, stores.policies, exploration, self._log.warn),
                stores.payloads,
                CollectSummary.of(own),
            )
            for policy, own, exploration, stores in parts
        ]

    def _follow_opponents(self) -> None:
        """Draw opponents by the newest message from now on. Collecting never waits: a checkpoint that is still on its
        way is tried again before the next chunk."""
        lanes, news = self._env.opponents, self._opponents
        if lanes is not None and news is not None:
            fetches = [own.checkpoints.fetch for own in self._stores.of_policies]
            with suppress(NotNowError):
                lanes.follow(news, fetches, say=self._log.say, warn=self._log.warn)
                self._opponents = None

    def _say_who_computes(self) -> None:
        """Log a policy that computes its actions by itself, although the run has inference workers."""
        for policy_index, places in enumerate([] if self._inference is None else self._inference.places):
            if not places:
                self._log.warn(
                    f"policy {policy_index} computes its actions in each collector, not in inference workers: its "
                    "networks do not come from remuda.Setup.inference"
                )

    def _allow(self, news: ChunkAccepted | Credit) -> None:
        self._credit = max(self._credit, news.credit_env_steps)
        if news.task.number > self._newest_task.number:
            self._newest_task = news.task
        newest = (Acting(news.policy, news.exploration), *news.others)  # a refusal tells of the first alone
        for own, acting in zip(self._policies, newest, strict=False):
            own.acting.note_newest(acting)

    def _follow_task(self) -> None:
        """Continue at the newest task. Raises EnvironmentBuildError."""
        task = self._newest_task
        if task == self._task:
            return
        with self._link.during("preparing", f"building the environments of task {task.number}"):
            self._env.begin(task)
        self._task = task
        self._log.say(f"task {task.number} begins: episodes under way are left")

    def _collect(self, behaviors: Sequence[Behavior]) -> Sequence[Collected]:
        if self._inference is not None:
            self._inference.acting = [behavior.policy for behavior in behaviors]
        return self._rollout.collect(self._plan.chunk_slots, behaviors, longest_s=self._plan.longest_chunk_s)

    def _hand_in(self, collected: Sequence[Collected]) -> None:
        chunk = ChunkId(self._identity.uuid, self._identity.incarnation, self._identity.next_sequence())
        collected = [replace(one, task=self._task.number) for one in collected]
        self._taken += collected[0].env_steps
        self._used_credit += self._plan.slots([one.meta(chunk) for one in collected])
        self._env.keep_steps(chunk, collected)
        self._at_hand.append((chunk, collected))
        self._announce()

    def _announce(self) -> None:
        """Store collected chunks in data/ and announce them. Chunks without space wait."""
        while self._at_hand:
            chunk, collected = self._at_hand[0]
            try:
                metas = [
                    own.payloads.write(one.meta(chunk), one.columns)
                    for own, one in zip(self._policies, collected, strict=True)
                ]
            except NotNowError as error:
                self._log.waits(error, f"chunk {chunk.sequence} ")
                return
            del self._at_hand[0]
            self._log.goes_on()
            self._unacknowledged.add(chunk)
            self._link.send(ChunkReady(self._assign.lease, metas[0], metas[1:]))
            for own, one in zip(self._policies, collected, strict=True):
                own.summary.add(one)
            self._report_due()

    def _report_due(self, *, last: bool = False) -> None:
        for policy_index, own in enumerate(self._policies):
            assert own.acting.acting is not None, "it has collected"
            report = own.summary.due(train_iter=own.acting.acting.train_iter, env_step=self._taken, last=last)
            if report is not None:
                self._report(report, policy_index)

    def _report(self, report: CollectReport, policy_index: int) -> None:
        self._log.book.emit(report)
        if self._env.opponents is not None:
            self._env.opponents.log_drawn(policy_index, self._log.say)
        statistics = {**report.window.statistics(), **report.counts}
        if report.task is not None:
            statistics["task"] = report.task
        self._link.send(
            CollectorReport(
                self._assign.lease,
                train_iter=report.train_iter,
                episode_count=len(report.window.episode_returns),
                step_count=report.window.env_steps,
                duration_s=report.window.duration_s,
                reward_mean=statistics.pop("reward_mean"),
                reward_std=statistics.pop("reward_std"),
                statistics=statistics,
                metrics=dict(report.window.metrics),
                policy_index=policy_index,
            )
        )
