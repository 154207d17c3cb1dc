"""A collector's lease: step the vector, write chunks, announce them, and go no further than its credit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from remuda.collector.build import make_rollout
from remuda.collector.collected import Collected
from remuda.collector.rollout import Rollout
from remuda.collector.summary import CollectSummary
from remuda.config.schema import ExperimentConfig
from remuda.environments.record import record_environment
from remuda.environments.vectors import make_vector, single_spaces
from remuda.logbook.book import collector_logbook
from remuda.logbook.episode_reports import CollectReport
from remuda.logbook.printed import end_printed, log_printed
from remuda.logbook.timers import Timers
from remuda.policy.algorithms import make_policy
from remuda.policy.files.policy_file import LoadedPolicy, PolicyFileError
from remuda.policy.row_plan import row_plan
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.storage.run_folder import RunFolder
from remuda.stores.ports import NotNowError, RunStores
from remuda.wire.messages import (
    AnyMessage,
    Assign,
    ChunkAccepted,
    ChunkId,
    ChunkReady,
    CollectorReport,
    Credit,
    PolicyAvailable,
    PolicyRef,
)
from remuda.worker.affinity import settle
from remuda.worker.identity import WorkerIdentity
from remuda.worker.link import Link

CHUNKS_IN_THE_AIR = 2
"""Collected chunks that may wait to be stored and acknowledged before the collector waits too."""


class CollectorWork:
    """Collects for one experiment. A payload stays announced until the coordinator has acknowledged it."""

    warnings: Sequence[str] = ()
    """None: they stand in its own log."""

    def __init__(self, assign: Assign, identity: WorkerIdentity, link: Link, stores: RunStores) -> None:
        config = ExperimentConfig.model_validate_json(assign.config_json)
        self.timers = Timers()
        self._assign = assign
        self._identity = identity
        self._link = link
        self._plan = row_plan(config)
        self._policies = stores.policies
        self._payloads = stores.payloads
        self._close_stores = stores.close
        folder = stores.folder
        self._log = collector_logbook(folder, identity.uuid, identity.incarnation)
        log_printed(partial(self._log.say, "collector"))
        self._summary = CollectSummary.of(config)
        self._log.say("collector", settle(config, "collector", assign.index))  # before a vector starts processes
        said: list[str] = []
        self._env = make_vector(
            config.env,
            num_envs=config.env.num_envs,
            source_dir=config.source_dir,
            sharers=config.collector.count,
            chosen=said.append,
            broke=lambda text: self._log.say("collector", text, level="warning"),
        )
        self._taken = 0
        self._used_credit = 0
        self._credit = assign.credit_env_steps
        self._exploration = assign.exploration
        self._newest = PolicyRef()
        self._acting: PolicyRef | None = None
        self._damaged = PolicyRef()
        """The newest policy when its file was last found damaged."""
        self._at_hand: list[tuple[ChunkId, Collected]] = []
        """Collected, and not in data/ yet."""
        self._problem = ""
        """Why not, as told in the log."""
        self._unacknowledged: set[ChunkId] = set()
        self._draining = False
        try:
            if assign.index == 0:  # one collector describes it for all
                self._describe_environment(folder, config)
                stores.describe()
            self._rollout = self._make_rollout(config)
        except BaseException:
            self.close()
            raise
        self._log.say(
            "collector",
            f"collector {identity.uuid} (index {assign.index}) of {assign.name}: "
            f"n_sample: {self._plan.chunk_slots}, env_num: {config.env.num_envs}; {' '.join(said)}",
        )

    def handle(self, message: AnyMessage) -> None:
        """Credit, acknowledgements and news of policies."""
        match message:
            case ChunkAccepted():
                if message.chunk not in self._unacknowledged:
                    return  # of an earlier lease
                self._unacknowledged.remove(message.chunk)
                if message.rejected is not None:
                    self._log.say(
                        "collector", f"chunk {message.chunk} was refused: {message.rejected}", level="warning"
                    )
                self._allow(message.credit_env_steps, message.policy, message.exploration)
            case Credit():
                self._allow(message.credit_env_steps, message.policy, message.exploration)
            case PolicyAvailable():
                self._newest = max(self._newest, message.policy)
            case _:
                pass

    def step(self) -> bool:
        """Collect and announce one chunk, if credit, acknowledgements and data/ allow."""
        if self._at_hand:
            self._announce()
        if self._draining or len(self._at_hand) > self._payloads.ahead:
            return False
        if self._used_credit >= self._credit:
            self._link.activity("waiting", "waiting for credit")
            return False
        if len(self._unacknowledged) + len(self._at_hand) >= CHUNKS_IN_THE_AIR:
            self._link.activity("waiting", "waiting for acknowledgements")
            return False
        try:
            with self.timers("load policy"):
                acting = self._refresh_policy()
        except NotNowError as error:
            self._wait_for(error)
            return False
        self._link.activity("working", "collecting")
        with self.timers("collect"):
            collected = self._rollout.collect(
                self._plan.chunk_slots, self._exploration, policy_ref=acting, longest_s=self._plan.longest_chunk_s
            )
        with self.timers("hand in"):
            self._hand_in(collected)
        return len(self._at_hand) <= self._payloads.ahead

    def drain(self) -> None:
        """Announce the rows that were waiting for later steps; nothing more is collected."""
        self._draining = True
        self._link.activity("waiting", "waiting for acknowledgements")
        if self._acting is None:
            return
        rest = self._rollout.flush()
        if rest.rows:
            self._hand_in(rest)
        report = self._summary.last(train_iter=self._acting.train_iter, env_step=self._taken)
        if report is not None:
            self._report(report)

    @property
    def drained(self) -> bool:
        """No chunk is unfinished, and every announced one is acknowledged."""
        return self._draining and not self._unacknowledged and not self._at_hand

    @property
    def unstored(self) -> bool:
        """Chunks on their way to data/. One that lies there and was not announced counts at the coordinator's next
        start."""
        return bool(self._at_hand)

    def close(self) -> None:
        """Close environments and logs."""
        if self._at_hand:
            lost = sum(collected.env_steps for _, collected in self._at_hand)
            self._log.say("collector", f"{lost} env steps are lost: they were not in data/ at the end", level="warning")
        try:
            self._env.close()
        finally:
            end_printed()
            self._log.close()
            self._close_stores()

    def _describe_environment(self, folder: RunFolder, config: ExperimentConfig) -> None:
        for warning in record_environment(folder, config, self._env):
            self._log.say("collector", warning, level="warning")

    def _make_rollout(self, config: ExperimentConfig) -> Rollout:
        observation, action = single_spaces(self._env)
        policy = make_policy(
            config,
            ObservationSpec.of(observation),
            ActionSpec.of(action),
            chosen=lambda choice: self._log.say("collector", choice),
            device=config.collector.device,
        )
        return make_rollout(
            config,
            self._env,
            policy,
            index=self._assign.index,
            collectors=config.collector.count,
            generation=self._assign.generation,
            progress=self._stepped,
            timers=self.timers,
        )

    def _allow(self, credit_env_steps: int, policy: PolicyRef, exploration: dict[str, float]) -> None:
        self._credit = max(self._credit, credit_env_steps)
        self._newest = max(self._newest, policy)
        if exploration:
            self._exploration = exploration

    def _refresh_policy(self) -> PolicyRef:
        """Load the newest policy, once per version; in the place of a damaged one, keep the policy from before."""
        if self._acting is None or self._newest > max(self._acting, self._damaged):
            with self._link.during("preparing", "loading the policy"):
                loaded = self._load_policy()
            if loaded is not None:
                self._rollout.policy.load_state(loaded.state)
                self._acting = loaded.ref
        assert self._acting is not None, "credit comes only after the first policy was published"
        return self._acting

    def _load_policy(self) -> LoadedPolicy | None:
        try:
            return self._policies.load(newer_than=self._acting)
        except PolicyFileError as error:
            if self._acting is None:
                raise
            self._damaged = self._newest
            text = f"keeps the policy of version {self._acting.version}, until there is a sound one: {error}"
            self._log.say("collector", text, level="warning")
            return None

    def _hand_in(self, collected: Collected) -> None:
        chunk = self._next_chunk()
        self._taken += collected.env_steps
        self._used_credit += self._plan.slots(collected.meta(chunk))
        self._at_hand.append((chunk, collected))
        self._announce()

    def _announce(self) -> None:
        """Put what was collected into data/ and announce it. What cannot be put there now waits."""
        while self._at_hand:
            chunk, collected = self._at_hand[0]
            try:
                meta = self._payloads.write_chunk(collected.meta(chunk), collected.columns)
            except NotNowError as error:
                self._wait_for(error, f"chunk {chunk.sequence} ")
                return
            del self._at_hand[0]
            self._problem = ""
            self._unacknowledged.add(chunk)
            self._link.send(ChunkReady(self._assign.lease, meta))
            self._summarise(collected)

    def _wait_for(self, error: NotNowError, what: str = "") -> None:
        """Tell what is waited for, and in the log what is wrong, once."""
        self._link.activity("waiting", f"waiting for {error.waits_for}")
        if error.problem and not self._problem:
            self._problem = error.problem
            self._log.say("collector", f"{what}waits for {error.waits_for}: {error.problem}", level="warning")

    def _next_chunk(self) -> ChunkId:
        return ChunkId(self._identity.uuid, self._identity.incarnation, self._identity.next_sequence())

    def _summarise(self, collected: Collected) -> None:
        self._summary.add(collected)
        assert self._acting is not None
        report = self._summary.due(train_iter=self._acting.train_iter, env_step=self._taken)
        if report is not None:
            self._report(report)

    def _report(self, report: CollectReport) -> None:
        self._log.emit(report)
        statistics = report.window.statistics()
        if report.totals.env_restarts:
            statistics["env_restart_count"] = report.window.env_restarts
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
            )
        )

    def _stepped(self, env_steps: int) -> None:
        self._link.progress(self._link.progressed + env_steps)
