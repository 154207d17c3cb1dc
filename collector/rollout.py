"""Steps a vector of environments with a policy and returns the experience as columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from remuda.buffer.chunk import chunk_name
from remuda.collector.episodes import EpisodeTotals
from remuda.collector.masks import Masks
from remuda.collector.metrics import metric_means
from remuda.collector.n_step import Bools
from remuda.collector.rows import Rows
from remuda.collector.trace import Trace
from remuda.environments.atari import LIFE_LOST
from remuda.environments.episode_info import DISCOUNTED_RETURN, of_vector
from remuda.environments.legal_actions import ACTION_MASK, components_of
from remuda.environments.spaces import Array
from remuda.environments.vectors import Vector, clips_rewards, reset_with_info, single_spaces, tell_legal_actions
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.wire.messages import ChunkId, ChunkMeta, MetricMean, PolicyRef

LARGEST_REWARD = 1e30
"""Rewards are learned from as float32, which ends at 3.4e38, and in sums."""
LARGEST_OBSERVATION = 1e38
"""Of those that stay float64: float32 ends there, and their squares must be finite in float64."""


class CorruptExperienceError(ValueError):
    """An environment returned what cannot be learned from: a number that is not finite, or an impossible ending."""

    def __init__(self, problem: str, *, env_index: int, vector_step: int) -> None:
        super().__init__(f"environment {env_index} {problem} at step {vector_step} of the vector")
        self.env_index = env_index
        self.vector_step = vector_step


@dataclass(frozen=True)
class Collected:
    """A chunk of experience, ready to be written."""

    columns: dict[str, Array]
    """By name; see NStepRows, SegmentRows and UnrollRows. Observations are float32 (or float64, see
    Actor.keeps_float64) or the space's integer type, actions the space's type."""
    env_steps: int
    """Environment steps really taken for this chunk (resets not counted)."""
    policy: PolicyRef
    """The oldest policy that acted in it."""
    episode_returns: list[float]
    """Undiscounted, unclipped, of whole games; in order of ending."""
    episode_lengths: list[int]
    collect_s: float
    episode_info: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """What else is known of them, by name: the discounted return, and what they reported; those that reported nothing
    are left out."""
    metrics: dict[str, MetricMean] = field(default_factory=dict[str, MetricMean])
    """What the policy says of these steps; see Policy.collected_metrics."""

    @property
    def rows(self) -> int:
        """Rows in every column."""
        return len(self.columns["reward"])

    def meta(self, chunk: ChunkId) -> ChunkMeta:
        """The metadata of it, without size and checksum of the payload file; see write_chunk."""
        return ChunkMeta(
            chunk=chunk,
            file=chunk_name(chunk),
            rows=self.rows,
            env_steps=self.env_steps,
            payload_bytes=sum(column.nbytes for column in self.columns.values()),
            checksum=0,
            policy=self.policy,
            collect_s=self.collect_s,
            episode_returns=self.episode_returns,
            episode_lengths=self.episode_lengths,
            episode_info=self.episode_info,
            metrics=self.metrics,
        )


class Rollout:
    """Collects chunks from a vector of environments that resets in gymnasium's NEXT_STEP mode.

    The step after the end of an episode is its reset: it is neither counted nor made a row. A row needs the n steps
    after it (fewer at the end of an episode), so the last rows of a chunk come with the next one: over a rollout that
    ends with `flush`, there are as many rows as environment steps, none lost and none twice. A truncated episode
    bootstraps from its last observation, a terminated one does not (Pardo et al. 2018).

    When `collect` raises, its chunk never happened: none of its steps is counted anywhere. The rows waiting from
    chunks before it are kept and end at the last observation before the failure; episodes under way are abandoned;
    the next `collect` starts with a reset of all environments, which raises again if the vector is beyond repair.
    """

    policy: Policy
    """May be replaced between chunks."""

    def __init__(
        self,
        vector_env: Vector,
        policy: Policy,
        *,
        rows: Rows,
        rng: np.random.Generator,
        seeds: Sequence[int],
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
        timers: Timers | None = None,
        episode_info: Sequence[str] = (),
        metrics: Sequence[str] = (),
    ) -> None:
        """`rng` is for exploration; `seeds` has one per environment; `progress` is called with the steps as they are
        taken; `clock` returns seconds; `episode_info` names what environments report of an episode with its last
        step; `metrics` is Declaration.collected."""
        if len(seeds) != vector_env.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {vector_env.num_envs} environments: give one each")
        self.policy = policy
        self._env = vector_env
        self._rows = rows
        self.rng = rng
        """For exploration; its stream can be saved and restored between chunks."""
        self._seeds: list[int] | None = list(seeds)
        self._clock = clock
        self._progress = progress
        self._timers = timers or Timers()
        observation, action = single_spaces(vector_env)
        components = components_of(action) if policy.uses_legal_actions else ()
        if components:
            tell_legal_actions(vector_env)
        self._trace = Trace(
            observation,
            action,
            num_envs=vector_env.num_envs,
            kept=rows.kept,
            recorded=policy.recorded(),
            measured=policy.measured(),
            keeps_float64=policy.keeps_float64,
            state_size=policy.state_size,
        )
        self._masks = Masks(self._trace, components)
        self._acted = [PolicyRef()] * rows.kept  # which policy acted, per kept slot
        self._episodes = EpisodeTotals(vector_env.num_envs, discount=rows.discount)
        self._info_names = tuple(episode_info)
        self._info: dict[str, list[float]] = {}
        self._metric_names = frozenset(metrics)
        self._vector_steps = 0
        self._clips_rewards = clips_rewards(vector_env)
        self._must_reset = True

    def collect(
        self,
        env_steps: int,
        exploration: Mapping[str, float],
        *,
        policy_ref: PolicyRef | None = None,
        longest_s: float | None = None,
    ) -> Collected:
        """Take at least `env_steps` steps, rounded up to whole steps of the vector; `policy_ref` says who acts. Rows of
        single steps are given out sooner when `longest_s` has passed, then with at least one step of the vector.

        Raises CorruptExperienceError, MetricError, and whatever the environments or the policy raise (see the class).
        """
        if env_steps < 1:
            raise ValueError(f"a chunk has at least one step, not {env_steps}")
        started_s = self._clock()
        self._info = {name: [] for name in self._info_names}
        must_reset, self._must_reset = self._must_reset, True  # until this chunk is complete
        slots = -(-env_steps // self._env.num_envs)
        slots = slots if self._rows.whole_slots else 2 * slots + 1  # between two resets lies a step
        self._trace.begin(slots)
        if must_reset:
            self._reset()
        try:
            end_s = np.inf if longest_s is None or self._rows.whole_slots else started_s + longest_s
            taken = self._step(env_steps, exploration, self._trace.kept + slots, end_s)
        except Exception:
            self._check()  # names the environment whose broken numbers the policy may have choked on
            raise
        real = self._check()
        metrics = self._metrics(real)
        self._trace.pending[self._trace.new] = real
        score = reward = self._trace.reward[self._trace.new]
        if self._clips_rewards:
            score = reward.copy()
            np.clip(score, -1.0, 1.0, out=reward)
        acted = self._acted + [policy_ref or PolicyRef()] * len(real)
        columns, first_slot = self._rows.take(self._trace, last=False)
        if self._rows.whole_slots:
            columns["version"] = np.full(self._env.num_envs, (policy_ref or PolicyRef()).version, np.int64)
        ended = self._episodes.add(score, real, self._trace.over[self._trace.new])
        self._acted = acted[-self._rows.kept :]
        self._vector_steps += len(real)
        self._trace.shift()
        self._must_reset = False
        policy = acted[first_slot]
        collect_s = self._clock() - started_s
        info = {DISCOUNTED_RETURN: ended.discounted.tolist(), **self._info}
        returns, lengths = ended.returns.tolist(), ended.lengths.tolist()
        return Collected(columns, taken, policy, returns, lengths, collect_s, info, metrics)

    def flush(self) -> Collected:
        """Return the rows that wait for later steps, each ending at the last observation there is: for the end of a
        lease. Takes no step. The rollout can go on after it."""
        self._trace.begin(0)
        columns, first_slot = self._rows.take(self._trace, last=True)
        return Collected(columns, 0, self._acted[first_slot], [], [], 0.0)

    def _reset(self) -> None:
        first = self._seeds is not None
        observations, info = reset_with_info(self._env, self._seeds)
        self._seeds = None  # a later reset goes on with the environments' random streams
        self._trace.append_reset(observations)
        self._episodes.abandon()
        self._note_legal(info, first=first)

    def _step(self, env_steps: int, exploration: Mapping[str, float], last_slot: int, end_s: float) -> int:
        """Fill the trace until `env_steps` real steps were taken, up to `last_slot` and `end_s`; return how many."""
        trace, env, act, rng, progress = self._trace, self._env, self.policy.act_recording, self.rng, self._progress
        taken, resets, num_envs = 0, int(np.count_nonzero(trace.over[trace.end - 1])), env.num_envs
        enough = np.inf if self._rows.whole_slots else env_steps
        clock = self._clock if end_s < np.inf else lambda: 0.0
        acting, stepping = self._timers("act"), self._timers("step environments")
        while taken < enough and trace.end < last_slot and (clock() < end_s or not taken):
            with acting:
                seen = trace.observations[trace.end]
                actions, recorded = act(seen, exploration, rng, legal=trace.legal_now(), state=trace.carry())
            with stepping:
                observations, reward, terminated, truncated, info = env.step(actions)
            stepped = num_envs - resets
            taken += stepped
            progress(stepped)
            if self._info_names:
                self._note_info(info, terminated | truncated)
            if recorded:
                trace.record(recorded)
            life_lost = info.get(LIFE_LOST)
            resets = trace.append(actions, observations, reward, terminated, truncated, life_lost=life_lost)
            if trace.keeps_legal or ACTION_MASK in info:
                self._note_legal(info)
        return taken

    def _note_legal(self, info: Mapping[str, object], *, first: bool = False) -> None:
        wrong = self._masks.note(info, first=first)
        if wrong is not None:
            step = self._vector_steps + self._trace.end - 1 - self._trace.kept
            raise CorruptExperienceError(wrong[1], env_index=wrong[0], vector_step=step)

    def _note_info(self, info: Mapping[str, object], over: Array) -> None:
        if over.any():
            for name, values in of_vector(info, self._info_names, over).items():
                self._info[name] += values

    def _check(self) -> Bools:
        """Refuse what cannot be learned from; return which new slots are real steps."""
        trace = self._trace
        real = trace.real()
        reward, seen = trace.reward[trace.new], trace.observations[trace.kept + 1 : trace.end + 1]
        self._refuse(trace.over[trace.new] & ~real, "ended an episode by its reset (not AutoresetMode.NEXT_STEP)")
        reward[~real] = 0.0
        self._refuse(~np.isfinite(reward), "returned a reward that is not finite")
        self._refuse(
            np.abs(reward) > LARGEST_REWARD, f"returned a reward beyond {LARGEST_REWARD:g}, too large to add up"
        )
        if seen.dtype.kind == "f":
            self._refuse(~np.isfinite(seen), "returned an observation that is not finite")
        if seen.dtype == np.float64:
            self._refuse(
                np.abs(seen) > LARGEST_OBSERVATION,
                f"returned an observation beyond {LARGEST_OBSERVATION:g}, too large to normalise",
            )
        return real

    def _metrics(self, real: Bools) -> dict[str, MetricMean]:
        """What the policy says of the new slots that are `real` steps."""
        steps = int(np.count_nonzero(real)) if self._metric_names else 0
        if not steps:
            return {}
        columns = {name: values[self._trace.new][real] for name, values in self._trace.noted.items()}
        return metric_means(self.policy, columns, self._metric_names, steps=steps)

    def _refuse(self, bad: Bools, problem: str) -> None:
        """Raise for the first of `bad` [time, env, …]."""
        if bad.any():
            step, env = (int(index) for index in np.argwhere(bad)[0][:2])
            raise CorruptExperienceError(problem, env_index=env, vector_step=self._vector_steps + step)
