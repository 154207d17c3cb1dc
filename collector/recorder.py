"""Experience of the environments of one policy, kept until a chunk is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from remuda.buffer.frames import FRAMES
from remuda.collector.collected import Collected, CorruptExperienceError
from remuda.collector.rows import Rows
from remuda.collector.trace import Bools, Floats, Integers, Trace
from remuda.environments.faults import LARGEST_OBSERVATION, LARGEST_REWARD
from remuda.environments.lanes import DISCOUNTED_RETURN
from remuda.environments.legal_actions import ACTION_MASK, Components, Legal, components_of, without_any
from remuda.environments.spaces import Array, Space
from remuda.policy.base import Policy
from remuda.wire.messages import LARGEST_METRIC, MetricMean, PolicyRef


class Replacements:
    """Replaced environments of one chunk."""

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


class MetricError(ValueError):
    """Undeclared metrics of a policy, or metrics for the wrong number of steps."""


def metric_means(policy: Policy, columns: Mapping[str, Array], names: Set[str], *, steps: int) -> dict[str, MetricMean]:
    """Compute a policy's metrics for a chunk, and return the mean of each over the steps with a value.

    Args:
        policy: the acting policy.
        columns: see Policy.collected_metrics; each [steps, …].
        names: Declaration.collected.
        steps: number of steps.

    Returns:
        By name. A metric without a value is left out.

    Raises:
        MetricError: an unknown name, or not one number for each step.
    """
    means: dict[str, MetricMean] = {}
    for name, of_steps in policy.collected_metrics(columns).items():
        if name not in names:
            raise MetricError(f"{_who(policy)} returned {name!r}, which its declaration does not list in `collected`")
        values = np.asarray(of_steps, np.float64)
        if values.shape != (steps,):
            raise MetricError(f"{_who(policy)} returned {name!r} of shape {values.shape} for {steps} steps")
        finite = values[np.abs(values) <= LARGEST_METRIC]  # nor nan
        if finite.size:
            means[name] = MetricMean(float(finite.mean()), finite.size)
    return means


def _who(policy: Policy) -> str:
    return f"{type(policy).__name__}.collected_metrics"


class Masks:
    """Stores masks in a trace. The first reset decides if masks exist, since all rows of a run are alike."""

    def __init__(self, trace: Trace, components: Components) -> None:
        """`components` of actions, see remuda.environments.legal_actions; empty without masks."""
        self._trace, self._components = trace, components

    def note(self, legal: Legal | None, *, first: bool = False) -> tuple[int, str] | None:
        """Store the masks of the newest step or reset, bool [env, values], or None without masks. Changes the array.
        `first` marks the first reset.

        No action needs to be legal at the end of an episode. Returns the index of a faulty environment and its fault,
        or None.
        """
        trace, components = self._trace, self._components
        if first and legal is not None:
            trace.keep_legal(sum(components))
        if legal is not None and (stuck := without_any(legal, components)).any():
            wrong: Bools = stuck & ~trace.over[trace.end - 1]
            if wrong.any():
                said = f"has no legal action in an episode that goes on (info[{ACTION_MASK!r}])"
                return int(np.argmax(wrong)), said
            legal[stuck] = True
        if trace.keeps_legal:
            trace.note_legal(legal)
        elif legal is not None and not legal.all():
            late = f"says which actions are legal (info[{ACTION_MASK!r}]), but did not with its first reset,"
            return int(np.argmin(np.all(legal, axis=1))), late
        return None


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


Infos = Mapping[str, list[float]]


class Recorder:
    """The trace of a vector, as the source of rows, and the sums of the current episodes.

    If an error occurs while a chunk is collected or made, that chunk never happened: waiting rows of chunks before are
    kept, and end at the last observation before the failure.
    """

    def __init__(
        self, policy: Policy, rows: Rows, observation: Space, action: Space, *, num_envs: int, metrics: Sequence[str]
    ) -> None:
        """`policy` chooses the recorded values of each action; `metrics` is Declaration.collected."""
        self.rows = rows
        self.trace = Trace(
            observation,
            action,
            num_envs=num_envs,
            kept=rows.kept,
            recorded=policy.recorded(),
            measured=policy.measured(),
            keeps_float64=policy.keeps_float64,
            state_size=policy.state_size,
        )
        self.components: Components = components_of(action) if policy.uses_legal_actions else ()
        """Components of actions; empty for policies that ignore masks."""
        self._masks = Masks(self.trace, self.components)
        self._acted = [PolicyRef()] * rows.kept  # which policy acted, per kept slot
        self._episodes = EpisodeTotals(num_envs, discount=rows.discount)
        self._metric_names = frozenset(metrics)
        self._vector_steps = 0
        self.replacements = Replacements()
        """Replaced environments of the current chunk."""

    def reset(self, observations: Array) -> None:
        """All environments were reset, to these observations [env, …]; episodes under way are abandoned."""
        self.trace.append_reset(observations)
        self._episodes.abandon()

    def note_legal(self, legal: Legal | None, *, first: bool = False) -> None:
        """Store the legal actions after the newest step or reset: bool [env, values], or None without masks. Changes
        the array. `first` marks the first reset. Raises CorruptExperienceError."""
        wrong = self._masks.note(legal, first=first)
        if wrong is not None:
            step = self._vector_steps + self.trace.end - 1 - self.trace.kept
            raise CorruptExperienceError(wrong[1], env_index=wrong[0], vector_step=step)

    def check(self, ended: Bools) -> Bools:
        """Refuse unusable new slots; return the real steps, bool [time, env]. `ended` [time, env] marks the ends of
        games. Raises CorruptExperienceError."""
        trace = self.trace
        real = trace.real()
        reward, seen = trace.reward[trace.new], trace.observations[trace.kept + 1 : trace.end + 1]
        cuts = self.replacements.cuts(trace)
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
        self,
        policy: Policy,
        env_steps: int,
        *,
        acted: PolicyRef,
        ended: Bools,
        seconds: Callable[[], float],
        info: Callable[[Array, Integers], Infos],
        clips_rewards: bool = False,
        without_idle_rows: bool = False,
    ) -> Collected:
        """Make a chunk of the new slots, which took `env_steps` environment steps, and begin the next.

        `ended` bool [time, env] marks the ends of games, `acted` names the policy, `seconds` returns the duration.
        `info` returns further numbers of the finished episodes, from their returns [n] and environments [n].
        `clips_rewards` clips the learner's rewards to [-1, 1]. `without_idle_rows` drops sequences without a real step;
        segments are dropped only if none has a real step.
        """
        trace, rows = self.trace, self.rows
        real = self.check(ended)
        metrics = self._metrics(policy, real)
        trace.pending[trace.new] = real
        score = reward = trace.reward[trace.new]
        if clips_rewards:
            score = reward.copy()
            np.clip(score, -1.0, 1.0, out=reward)
        who = self._acted + [acted] * len(real)
        columns, first_slot = rows.take(trace, last=False)
        if rows.whole_slots:
            columns["version"] = np.full(trace.num_envs, acted.version, np.int64)
        if without_idle_rows:
            columns = self._without_idle(columns)
        cut_before = self.replacements.cut_before(trace)
        if cut_before is not None:
            self._episodes.abandon(cut_before)
        cuts = self.replacements.cuts(trace)
        over = self._episodes.add(score, real, ended, cuts)
        counted = ended if cuts is None else ended & ~cuts
        self._acted = who[-rows.kept :]
        self._vector_steps += len(real)
        returns, lengths = over.returns.tolist(), over.lengths.tolist()
        numbers = {DISCOUNTED_RETURN: over.discounted.tolist(), **info(over.returns, np.nonzero(counted)[1])}
        trace.shift()
        restarts = self.replacements.count
        return Collected(columns, env_steps, who[first_slot], returns, lengths, seconds(), numbers, metrics, restarts)

    def flush(self, *, without_idle_rows: bool = False) -> Collected:
        """Return the rows waiting for later steps, each cut at the last observation; see `chunk`."""
        self.trace.begin(0)
        columns, first_slot = self.rows.take(self.trace, last=True)
        if without_idle_rows:
            columns = self._without_idle(columns)
        return Collected(columns, 0, self._acted[first_slot], [], [], 0.0)

    def _without_idle(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Return the rows with a real step. Segments: all or none, since an update takes a row of each environment."""
        if "valid" not in columns:
            return columns
        kept = np.any(columns["valid"], axis=1)
        if self.rows.whole_slots:
            kept[:] = kept.any()
        return _of_rows(columns, kept)

    def _metrics(self, policy: Policy, real: Bools) -> dict[str, MetricMean]:
        """Return the policy's metrics of the new slots that are `real` steps."""
        steps = int(np.count_nonzero(real)) if self._metric_names else 0
        if not steps:
            return {}
        columns = {name: values[self.trace.new][real] for name, values in self.trace.noted.items()}
        return metric_means(policy, columns, self._metric_names, steps=steps)

    def _refuse(self, bad: Bools, problem: str) -> None:
        """Raise for the first of `bad` [time, env, …]."""
        if bad.any():
            step, env = (int(index) for index in np.argwhere(bad)[0][:2])
            raise CorruptExperienceError(problem, env_index=env, vector_step=self._vector_steps + step)


def _of_rows(columns: Mapping[str, Array], kept: Bools) -> dict[str, Array]:
    """Return the columns of the `kept` rows, bool [rows]."""
    return {name: column if name == FRAMES else column[kept] for name, column in columns.items()}
