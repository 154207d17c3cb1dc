"""Steps a vector of environments with a policy and returns the experience as columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.collector.episodes import EpisodeTotals
from remuda.collector.n_step import Bools, n_step_windows
from remuda.collector.trace import Trace
from remuda.environments.make import Vector, reset_vector, single_spaces
from remuda.environments.spaces import Array
from remuda.policy.base import Policy
from remuda.wire.messages import PolicyRef


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
    """obs and next_obs [rows, …] (float32, or the space's integer type), action [rows, …] (the space's type), reward
    float32 [rows] (discounted sum over the row's m steps), discount float32 [rows] (discount^m, or 0 where the episode
    terminated): a value estimate is reward + discount * value(next_obs). In order of time, then of environment."""
    env_steps: int
    """Environment steps really taken for this chunk (resets not counted)."""
    policy: PolicyRef
    """The oldest policy that acted in it."""
    episode_returns: list[float]
    """Undiscounted, in order of ending."""
    episode_lengths: list[int]
    collect_s: float

    @property
    def rows(self) -> int:
        """Rows in every column."""
        return len(self.columns["reward"])


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
        n_step: int,
        discount: float,
        rng: np.random.Generator,
        seeds: Sequence[int],
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
    ) -> None:
        """`rng` is for exploration; `seeds` has one per environment; `progress` hears of the steps as they are taken;
        `clock` returns seconds."""
        if len(seeds) != vector_env.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {vector_env.num_envs} environments: give one each")
        self.policy = policy
        self._env = vector_env
        self._n_step = n_step
        self._discount = discount
        self._powers = discount ** np.arange(n_step + 1)
        self._rng = rng
        self._seeds: list[int] | None = list(seeds)
        self._clock = clock
        self._progress = progress
        observation, action = single_spaces(vector_env)
        self._trace = Trace(observation, action, num_envs=vector_env.num_envs, kept=n_step)
        self._acted = [PolicyRef()] * n_step  # which policy acted, per kept slot
        self._episodes = EpisodeTotals(vector_env.num_envs)
        self._vector_steps = 0
        self._must_reset = True

    def collect(
        self, env_steps: int, exploration: Mapping[str, float], *, policy_ref: PolicyRef | None = None
    ) -> Collected:
        """Take at least `env_steps` steps, rounded up to whole steps of the vector; `policy_ref` says who acts.

        Raises CorruptExperienceError, and whatever the environments or the policy raise (see the class)."""
        if env_steps < 1:
            raise ValueError(f"a chunk has at least one step, not {env_steps}")
        started_s = self._clock()
        must_reset, self._must_reset = self._must_reset, True  # until this chunk is complete
        self._trace.begin(2 * -(-env_steps // self._env.num_envs) + 1)  # between two resets lies a step
        if must_reset:
            self._reset()
        try:
            taken = self._step(env_steps, exploration)
        except Exception:
            self._check()  # names the environment whose broken numbers the policy may have choked on
            raise
        real = self._check()
        self._trace.pending[self._trace.new] = real
        acted = self._acted + [policy_ref or PolicyRef()] * len(real)
        columns, policy = self._take_rows(acted, last=False)
        returns, lengths = self._episodes.add(
            self._trace.reward[self._trace.new], real, self._trace.done[self._trace.new]
        )
        self._acted = acted[-self._n_step :]
        self._vector_steps += len(real)
        self._trace.shift()
        self._must_reset = False
        return Collected(columns, taken, policy, returns.tolist(), lengths.tolist(), self._clock() - started_s)

    def flush(self) -> Collected:
        """Return the rows that wait for later steps, each ending at the last observation there is: for the end of a
        lease. Takes no step. The rollout can go on after it."""
        self._trace.begin(0)
        columns, policy = self._take_rows(self._acted, last=True)
        return Collected(columns, 0, policy, [], [], 0.0)

    def _reset(self) -> None:
        observations = reset_vector(self._env, self._seeds)
        self._seeds = None  # a later reset goes on with the environments' random streams
        self._trace.append_reset(observations)
        self._episodes.abandon()

    def _step(self, env_steps: int, exploration: Mapping[str, float]) -> int:
        """Step the vector until `env_steps` real steps were taken; return how many it were."""
        trace, env, act, rng, progress = self._trace, self._env, self.policy.act, self._rng, self._progress
        taken, resets, num_envs = 0, int(np.count_nonzero(trace.done[trace.end - 1])), env.num_envs
        while taken < env_steps and trace.end < trace.slots:
            actions = act(trace.observations[trace.end], exploration, rng, deterministic=False)
            observations, reward, terminated, truncated, _ = env.step(actions)
            stepped = num_envs - resets
            taken += stepped
            progress(stepped)
            resets = trace.append(actions, observations, reward, terminated, truncated)
        return taken

    def _check(self) -> Bools:
        """Refuse what cannot be learned from; return which new slots are real steps."""
        trace = self._trace
        real = trace.real()
        reward, seen = trace.reward[trace.new], trace.observations[trace.kept + 1 : trace.end + 1]
        self._refuse(trace.done[trace.new] & ~real, "ended an episode by its reset (not AutoresetMode.NEXT_STEP)")
        reward[~real] = 0.0
        self._refuse(~np.isfinite(reward), "returned a reward that is not finite")
        if seen.dtype.kind == "f":
            self._refuse(~np.isfinite(seen), "returned an observation that is not finite")
        return real

    def _refuse(self, bad: Bools, problem: str) -> None:
        """Raise for the first of `bad` [time, env, …]."""
        if bad.any():
            step, env = (int(index) for index in np.argwhere(bad)[0][:2])
            raise CorruptExperienceError(problem, env_index=env, vector_step=self._vector_steps + step)

    def _take_rows(self, acted: list[PolicyRef], *, last: bool) -> tuple[dict[str, Array], PolicyRef]:
        """Give out the pending rows that are complete (`last`: all), with the policy of the first; `acted` per slot."""
        trace, end, num_envs = self._trace, self._trace.end, self._env.num_envs
        windows = n_step_windows(trace.reward[:end], trace.done[:end], n_step=self._n_step, discount=self._discount)
        pending = trace.pending[:end]
        given = pending if last else pending & windows.complete
        first = np.flatnonzero(given)  # of each row's window, counting time-major over slots and environments
        length = windows.length.take(first)
        after = first + num_envs * length
        bootstraps = ~trace.terminated.take(after - num_envs)
        seen = trace.observations.reshape(-1, *trace.observations.shape[2:])
        columns: dict[str, Array] = {
            "obs": seen.take(first, axis=0),
            "action": trace.actions.reshape(-1, *trace.actions.shape[2:]).take(first, axis=0),
            "reward": windows.reward.take(first).astype(np.float32),
            "next_obs": seen.take(after, axis=0),
            "discount": (self._powers.take(length) * bootstraps).astype(np.float32),
        }
        pending &= ~given
        return columns, acted[int(first[0]) // num_envs] if len(first) else acted[-1]
