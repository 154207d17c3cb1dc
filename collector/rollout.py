"""Steps a vector of environments with a policy and returns the experience as columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from remuda.collector.collected import Collected
from remuda.collector.recorder import Recorder
from remuda.collector.replacements import Replacements
from remuda.collector.rows import Rows
from remuda.environments.atari import LIFE_LOST
from remuda.environments.episode_info import of_vector
from remuda.environments.faults import REPLACED
from remuda.environments.legal_actions import ACTION_MASK, legal_of_vector
from remuda.environments.spaces import Array
from remuda.environments.vectors import Vector, clips_rewards, reset_with_info, single_spaces, tell_legal_actions
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.wire.messages import PolicyRef


class Rollout:
    """Collects chunks from a vector of environments that resets in gymnasium's NEXT_STEP mode.

    The step after the end of an episode is its reset: it is neither counted nor made a row. A row needs the n steps
    after it (fewer at the end of an episode), so the last rows of a chunk come with the next one: over a rollout that
    ends with `flush`, there are as many rows as environment steps, none lost and none twice. A truncated episode
    bootstraps from its last observation, a terminated one does not (Pardo et al. 2018).

    Where an environment was made again (REPLACED), its episode was truncated by the step before, and has no return: it
    is not among those that ended. The step itself is a reset.

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
        self._first = True
        """There was no reset yet."""
        self._clock = clock
        self._progress = progress
        self._timers = timers or Timers()
        observation, action = single_spaces(vector_env)
        self._recorder = Recorder(policy, rows, observation, action, num_envs=vector_env.num_envs, metrics=metrics)
        if self._recorder.components:
            tell_legal_actions(vector_env)
        self._info_names = tuple(episode_info)
        self._info: dict[str, list[float]] = {}
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
        trace = self._recorder.trace
        trace.begin(slots)
        self._recorder.replacements = Replacements()
        if must_reset:
            self._reset()
        try:
            end_s = np.inf if longest_s is None or self._rows.whole_slots else started_s + longest_s
            taken = self._step(env_steps, exploration, trace.kept + slots, end_s)
        except Exception:
            self._recorder.check(trace.over[trace.new])  # names the environment whose numbers the policy choked on
            raise
        collected = self._recorder.chunk(
            self.policy,
            taken,
            acted=policy_ref or PolicyRef(),
            ended=trace.over[trace.new],
            seconds=lambda: self._clock() - started_s,
            info=lambda returns, envs: self._info,
            clips_rewards=self._clips_rewards,
        )
        self._must_reset = False
        return collected

    def move(self, vector_env: Vector, seeds: Sequence[int]) -> None:
        """Go on in other environments, as many, with the same observations and actions. Episodes under way are
        abandoned: their rows end with the last observation, as if truncated, and they have no return."""
        self._env, self._seeds, self._must_reset = vector_env, list(seeds), True
        self._clips_rewards = clips_rewards(vector_env)
        if self._recorder.components:
            tell_legal_actions(vector_env)

    def flush(self) -> Collected:
        """Return the rows that wait for later steps, each ending at the last observation there is: for the end of a
        lease. Takes no step. The rollout can go on after it."""
        return self._recorder.flush()

    def _reset(self) -> None:
        first, self._first = self._first, False
        observations, info = reset_with_info(self._env, self._seeds)
        self._seeds = None  # a later reset goes on with the environments' random streams
        self._recorder.reset(observations)
        if REPLACED in info:
            self._recorder.replacements.note_reset(info)
        self._note_legal(info, first=first)

    def _step(self, env_steps: int, exploration: Mapping[str, float], last_slot: int, end_s: float) -> int:
        """Fill the trace until `env_steps` real steps were taken, up to `last_slot` and `end_s`; return how many."""
        trace, env, act, rng = self._recorder.trace, self._env, self.policy.act_recording, self.rng
        progress = self._progress
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
            if REPLACED in info:
                stepped -= self._recorder.replacements.note(info, trace)
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
        """Keep which actions are legal by the newest `info`. Raises CorruptExperienceError, and ValueError for a mask
        of another shape."""
        components = self._recorder.components
        if components:
            legal = legal_of_vector(info, num_envs=self._env.num_envs, components=components)
            self._recorder.note_legal(legal, first=first)

    def _note_info(self, info: Mapping[str, object], over: Array) -> None:
        if over.any():
            for name, values in of_vector(info, self._info_names, over).items():
                self._info[name] += values
