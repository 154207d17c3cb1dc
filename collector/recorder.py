"""Experience of a policy in its lanes, kept until a chunk is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from remuda.buffer.frames import FRAMES
from remuda.collector.collected import Collected, CorruptExperienceError, metric_means
from remuda.collector.rows import Rows
from remuda.collector.steps import Slots, newest_images
from remuda.collector.trace import Bools, Floats, Integers, Trace
from remuda.environments.assignment import AGAINST_PAST, agent_columns
from remuda.environments.errors import LARGEST_OBSERVATION, LARGEST_REWARD
from remuda.environments.lanes import DISCOUNTED_RETURN, Lanes
from remuda.environments.legal_actions import ACTION_MASK, Components, components_of, without_any
from remuda.environments.spaces import Array, usable_actions
from remuda.policy.base import Policy
from remuda.wire.messages import MetricMean, PolicyRef


@dataclass(frozen=True)
class Behavior:
    """Exploration and version of a policy for the next chunk."""

    exploration: Mapping[str, float]
    policy: PolicyRef
    """Version of the policy."""


@dataclass(frozen=True, kw_only=True)
class PolicySetup:
    """A policy, and the form of its experience."""

    policy: Policy
    rows: Rows
    """Exclusive to this policy: rows keep state of its lanes."""
    metrics: Sequence[str] = ()
    """Declaration.collected."""
    episode_info: Sequence[str] = ()
    """Names of numbers reported by environments with the last step of an episode."""
    keeps_steps: bool = False
    """Chunks have all steps, for files of steps."""


class Replacements:
    """Replaced environments of a chunk."""

    def __init__(self) -> None:
        self.count = 0
        """Number of replaced environments."""
        self._cuts: list[tuple[int, Bools]] = []
        """Slots of the trace, and the environments [env] with an episode cut there, without a return."""

    def cut(self, replaced: Bools, trace: Trace) -> None:
        """Truncate the episodes of environments [env] replaced in the next appended step."""
        self._cuts.append((trace.end - 1, trace.truncate(replaced)))

    def cuts(self, trace: Trace) -> Bools | None:
        """Return the new slots, [time, env], at which episodes without a return end; None without any."""
        if not self._cuts:
            return None
        ends = np.zeros((trace.end - trace.kept, trace.num_envs), np.bool_)
        for slot, cut in self._cuts:
            if slot >= trace.kept:
                ends[slot - trace.kept] = cut
        return ends

    def cut_before(self, trace: Trace) -> Bools | None:
        """Return the environments [env] with an episode cut right before the new slots; None without any."""
        return next((cut for slot, cut in self._cuts if slot == trace.kept - 1), None)


class Ended(NamedTuple):
    """Episodes in order of ending, at equal times in order of environments."""

    returns: Floats
    """[n]: sums of rewards."""
    discounted: Floats
    """[n]: the same, with the reward of an episode's step t (from 0) times discount^t."""
    lengths: Integers
    """[n]: steps."""


class EpisodeTotals:
    """Sums rewards and steps per episode, across stretches, for all environments at once."""

    def __init__(self, num_envs: int, *, discount: float) -> None:
        self._discount = discount
        self._sums: Floats = np.zeros((2, num_envs))
        """Sums of rewards and of discounted rewards of the current episodes."""
        self._lengths: Integers = np.zeros(num_envs, np.int64)

    def abandon(self, envs: Bools | None = None) -> None:
        """Forget the episodes under way; `envs` [env]: of these environments alone."""
        those = slice(None) if envs is None else envs
        self._sums[:, those] = 0.0
        self._lengths[those] = 0

    def add(self, reward: Floats, real: Bools, done: Bools, uncounted: Bools | None = None) -> Ended:
        """Add a stretch of steps and return its finished episodes.

        All arrays are [time, env]. `real` marks counted steps; all others bring no reward. `uncounted` ends are left
        out.
        """
        lengths = np.cumsum(real, axis=0, dtype=np.int64)
        lengths += self._lengths
        started = np.zeros_like(lengths)  # what `lengths` was when the episode of this step began
        np.maximum.accumulate((lengths * done)[:-1], axis=0, out=started[1:])
        discounted = reward * self._discount ** (lengths - real - started)
        sums = np.cumsum((reward, discounted), axis=1)
        sums += self._sums[:, None]
        self._sums, self._lengths = sums[:, -1].copy(), lengths[-1].copy()
        times, envs = np.nonzero(done)
        if not len(times):
            return Ended(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
        by_env = envs.argsort(kind="stable")
        same_env = envs[by_env[1:]] == envs[by_env[:-1]]
        later, earlier = (
            by_env[1:][same_env],
            by_env[:-1][same_env],
        )  # an episode and the one before it, same environment
        last = by_env[np.append(~same_env, True)]  # of each environment
        sums_then, lengths_then = sums[:, times, envs], lengths[times, envs]
        self._sums[:, envs[last]] -= sums_then[:, last]
        self._lengths[envs[last]] -= lengths_then[last]
        totals, steps = sums_then.copy(), lengths_then.copy()
        totals[:, later] -= sums_then[:, earlier]
        steps[later] -= lengths_then[earlier]
        if uncounted is not None:
            counted = ~uncounted[times, envs]
            return Ended(totals[0, counted], totals[1, counted], steps[counted])
        return Ended(totals[0], totals[1], steps)


class PolicyLanes:
    """The lanes of a policy: their trace, as the source of rows, and the sums of the current episodes.

    If an error occurs while a chunk is collected or made, that chunk never happened: waiting rows of chunks before are
    kept, and end at the last observation before the failure.
    """

    def __init__(self, setup: PolicySetup, lanes: Lanes, *, one_agent: bool, by_past: Bools | None) -> None:
        """`by_past` [lanes]: an older policy plays this lane in the episode under way."""
        self.lanes = lanes
        self._one_agent, self._by_past = one_agent, by_past
        self._policy, self._rows, group = setup.policy, setup.rows, lanes.group
        policy, rows = self._policy, self._rows
        self._trace = Trace(
            group.observation,
            group.action,
            num_envs=len(lanes),
            kept=rows.kept,
            recorded=policy.recorded(),
            measured=policy.measured(),
            keeps_float64=policy.keeps_float64,
            state_size=policy.state_size,
        )
        self.components: Components = components_of(group.action) if policy.uses_legal_actions else ()
        """Components of actions; empty for policies that ignore masks."""
        self._acted = [PolicyRef()] * rows.kept  # which policy acted, per kept slot
        self._episodes = EpisodeTotals(len(lanes), discount=rows.discount)
        self._metric_names = frozenset(setup.metrics)
        self._vector_steps = 0
        self._replacements = Replacements()
        self._first = True
        """No reset has happened yet."""
        self._action_shape = (len(lanes), *(group.action.shape or ()))
        self._action_dtype: np.dtype[Any] = np.dtype(group.action.dtype)
        self._keeps_steps = setup.keeps_steps
        self._begins_by_reset = False
        self._agents = group.agents
        self._columns = agent_columns(group.agents)
        self._info_names = tuple(setup.episode_info)
        self._info: dict[str, list[float]] = {}
        self._against: list[bool] = []
        """Of the finished episodes of this chunk: True with older policies in the game."""

    def begin(self, slots: int) -> None:
        """Begin a chunk of at most `slots` slots of time."""
        self._trace.begin(slots)
        self._replacements = Replacements()
        self._info = {name: [] for name in self._info_names}
        self._against = []
        self._begins_by_reset = False

    def reset(self, replaced: int) -> None:
        """Record a reset of all copies, with the number of `replaced` copies; episodes under way are abandoned."""
        trace = self._trace
        self._replacements.count += replaced
        trace.append_reset(self.lanes.observations)
        self._episodes.abandon()
        if not self._one_agent:
            trace.over[trace.end - 1] = self._rests()
            trace.away = self.lanes.over.copy()
        self._note_legal(first=self._first)
        self._first, self._begins_by_reset = False, True

    def act(self, exploration: Mapping[str, float], rng: np.random.Generator) -> Array:
        """Return the actions [lanes, …] of the next step. Raises UnusableActionsError."""
        trace = self._trace
        actions, recorded = self._policy.act_recording(
            trace.observations[trace.end], exploration, rng, legal=trace.legal_now(), state=trace.carry()
        )
        if recorded:
            trace.record(recorded)
        usable = usable_actions(actions, self._action_shape, self._action_dtype, self._policy)
        return usable.astype(self._action_dtype, copy=False)

    def replace(self, replaced: Bools) -> None:
        """Count the copies replaced in the newest step, bool [envs], and end their episodes right before."""
        self._replacements.count += int(np.count_nonzero(replaced))
        self._replacements.cut(np.repeat(replaced, len(self._agents)), self._trace)

    def append(self, actions: Array, against: Bools | None) -> None:
        """Record the newest step of the copies. `against` [envs] marks games with older policies."""
        lanes, trace = self.lanes, self._trace
        ended, terminated = lanes.over, lanes.terminated
        if self._one_agent:
            trace.append(actions, lanes.observations, lanes.reward, terminated, ended, ended, lanes.life_lost)
        else:
            real = ~trace.over[trace.end - 1]
            terminated = terminated & real
            ended = terminated | (lanes.truncated & real)
            rests = self._rests()
            trace.append(actions, lanes.observations, lanes.reward, terminated, ended, rests, away=lanes.over)
        if (self._info_names or against is not None) and ended.any():
            for name, values in lanes.reported(self._info_names, ended).items():
                self._info[name] += values
            if against is not None:
                self._against += against[np.flatnonzero(ended) // len(self._agents)].tolist()
        if lanes.masked or trace.keeps_legal:
            self._note_legal()

    def check(self) -> Bools:
        """Refuse unusable new slots; return the real steps, bool [time, env]. Raises CorruptExperienceError."""
        trace, ended = self._trace, self._ended()
        real = trace.real()
        reward, seen = trace.reward[trace.new], trace.observations[trace.kept + 1 : trace.end + 1]
        cuts = self._replacements.cuts(trace)
        by_reset = ended & ~real if cuts is None else ended & ~real & ~cuts
        self._refuse(by_reset, "ended an episode by its reset (not AutoresetMode.NEXT_STEP)")
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

    def chunk(
        self, env_steps: int, behavior: Behavior, seconds: Callable[[], float], *, clips_rewards: bool
    ) -> Collected:
        """Make a chunk of the new slots, which took `env_steps` environment steps, and begin the next.

        `seconds` returns the duration. `clips_rewards` clips the learner's rewards to [-1, 1].
        """
        trace, rows, ended = self._trace, self._rows, self._ended()
        real = self.check()
        metrics = self._metrics(real)
        trace.pending[trace.new] = real
        score = reward = trace.reward[trace.new]
        if clips_rewards:
            score = reward.copy()
            np.clip(score, -1.0, 1.0, out=reward)
        cuts = self._replacements.cuts(trace)
        slots = self._slots(score, real, cuts) if self._keeps_steps else None
        who = self._acted + [behavior.policy] * len(real)
        columns, first_slot = rows.take(trace, last=False)
        if rows.whole_slots:
            columns["version"] = np.full(trace.num_envs, behavior.policy.version, np.int64)
        columns = self._without_idle(columns)
        cut_before = self._replacements.cut_before(trace)
        if cut_before is not None:
            self._episodes.abandon(cut_before)
        over = self._episodes.add(score, real, ended, cuts)
        counted = ended if cuts is None else ended & ~cuts
        self._acted = who[-rows.kept :]
        self._vector_steps += len(real)
        returns, lengths = over.returns.tolist(), over.lengths.tolist()
        info = self._episode_info(over.returns, np.nonzero(counted)[1])
        numbers = {DISCOUNTED_RETURN: over.discounted.tolist(), **info}
        trace.shift()
        counts = Counter(env_restart_count=self._replacements.count)
        return Collected(
            columns, env_steps, who[first_slot], returns, lengths, seconds(), numbers, metrics, counts, slots=slots
        )

    def flush(self) -> Collected:
        """Return the rows waiting for later steps, each cut at the last observation."""
        self._trace.begin(0)
        columns, first_slot = self._rows.take(self._trace, last=True)
        return Collected(self._without_idle(columns), 0, self._acted[first_slot], [], [], 0.0)

    def _slots(self, score: Floats, real: Bools, cuts: Bools | None) -> Slots:
        """Return a copy of the new slots; episodes cut by a replacement have no end."""
        trace, new = self._trace, self._trace.new
        over = trace.over[new].copy() if cuts is None else trace.over[new] & ~cuts
        by_reset = np.zeros(len(real), np.bool_)
        by_reset[:1] = self._begins_by_reset
        seen = newest_images(trace.observations[trace.kept + 1 : trace.end + 1]).copy()
        return Slots(trace.actions[new].copy(), score.copy(), seen, real, over, trace.terminated[new].copy(), by_reset)

    @property
    def seen_dtype(self) -> str:
        """Dtype of the kept observations."""
        return self._trace.observations.dtype.str

    def _rests(self) -> Bools:
        """Return the lanes [lanes] without a step in their next slot."""
        return self.lanes.over if self._by_past is None else self.lanes.over | self._by_past

    def _ended(self) -> Bools:
        """Return the ends of games, [time, lanes], without lost lives and without absent agents."""
        ended: Bools = self._trace.done[self._trace.new] & self._trace.over[self._trace.new]
        return ended

    def _note_legal(self, *, first: bool = False) -> None:
        """Store the legal actions of the newest observations. The `first` reset decides if masks exist, since all rows
        of a run are alike. No action needs to be legal at the end of an episode. Raises CorruptExperienceError, and
        ValueError for a mask of another shape."""
        trace, components = self._trace, self.components
        if not components:
            return
        legal = self.lanes.legal(components)
        if first and legal is not None:
            trace.keep_legal(sum(components))
        if legal is not None and (stuck := without_any(legal, components)).any():
            wrong: Bools = stuck & ~trace.over[trace.end - 1]
            said = f"has no legal action in an episode that goes on (info[{ACTION_MASK!r}])"
            self._refuse(wrong[None], said, trace.end - 1 - trace.kept)
            legal[stuck] = True
        if trace.keeps_legal:
            trace.note_legal(legal)
        elif legal is not None:
            late = f"says which actions are legal (info[{ACTION_MASK!r}]), but did not with its first reset,"
            self._refuse(~np.all(legal, axis=1)[None], late, trace.end - 1 - trace.kept)

    def _without_idle(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Return the rows with a real step, of several agents. Segments: all or none, since an update takes a row of
        each lane."""
        if self._one_agent or "valid" not in columns:
            return columns
        kept = np.any(columns["valid"], axis=1)
        if self._rows.whole_slots:
            kept[:] = kept.any()
        return {name: column if name == FRAMES else column[kept] for name, column in columns.items()}

    def _metrics(self, real: Bools) -> dict[str, MetricMean]:
        """Return the policy's metrics of the new slots that are `real` steps."""
        steps = int(np.count_nonzero(real)) if self._metric_names else 0
        if not steps:
            return {}
        columns = {name: values[self._trace.new][real] for name, values in self._trace.noted.items()}
        return metric_means(self._policy, columns, self._metric_names, steps=steps)

    def _episode_info(self, returns: Array, lanes: Array) -> Mapping[str, list[float]]:
        """Return numbers about the episodes with these returns, in these lanes."""
        if not self._columns and not self._against:
            return self._info
        agent = lanes % len(self._agents)
        own = {
            column: returns[agent == index].tolist()
            for index, column in enumerate(self._columns.values())
            if column in self._info
        }
        if AGAINST_PAST in self._info:
            own[AGAINST_PAST] = returns[np.array(self._against, np.bool_)].tolist()
        return {**self._info, **own}

    def _refuse(self, bad: Bools, problem: str, first_slot: int = 0) -> None:
        """Raise CorruptExperienceError for the first of `bad` [time, env, …], whose first slot is this new slot."""
        if bad.any():
            step, env = (int(index) for index in np.argwhere(bad)[0][:2])
            at = self._vector_steps + first_slot + step
            raise CorruptExperienceError(problem, env_index=env, vector_step=at)
