"""Steps copies of an environment with several agents; what each agent did goes into the chunk of its policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from remuda.collector.collected import Collected
from remuda.collector.past import PastPlayers
from remuda.collector.recorder import Recorder
from remuda.collector.replacements import Replacements
from remuda.collector.rows import Rows
from remuda.environments.agents import AgentsVector, Lanes
from remuda.environments.assignment import AGAINST_PAST, agent_columns
from remuda.environments.episode_info import of_single
from remuda.environments.legal_actions import legal_of_each
from remuda.environments.spaces import Array
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.wire.messages import PolicyRef


@dataclass(frozen=True)
class Turn:
    """How a policy acts in the next chunk."""

    exploration: Mapping[str, float]
    policy: PolicyRef
    """Its newest version."""


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One policy, and what it needs to collect for its agents."""

    policy: Policy
    rows: Rows
    """Of its own: it keeps what belongs to this policy's lanes."""
    metrics: Sequence[str] = ()
    """Declaration.collected."""
    episode_info: Sequence[str] = ()
    """Names of the numbers that are taken from an agent's `info` at its last step."""


class AgentsRollout:
    """Collects a chunk for each policy at once, from copies that reset in gymnasium's NEXT_STEP mode.

    For its policy each agent of a copy is a lane of its own: it begins with the copy's reset, ends when the agent
    leaves, and stands still until the next episode. A step of a copy counts once, as an environment step of every
    policy. For each step in which an agent acted by the newest policy there is one row of single-step experience, or
    one valid slot of a segment or sequence; nothing of lanes that older policies play (see PastPlayers) is recorded.
    Sequences without any valid slot are left out. A chunk has a segment of each lane, also of agents that are away, or
    none at all if none of them has a valid slot.

    When `collect` raises, its chunks never happened, as with Rollout.
    """

    def __init__(
        self,
        vector: AgentsVector,
        seats: Sequence[Seat],
        *,
        rng: np.random.Generator,
        seeds: Sequence[int],
        past: PastPlayers | None = None,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
        timers: Timers | None = None,
    ) -> None:
        """`seats` are in the order of the vector's groups; `rng` is for exploration, of all policies; `seeds` has one
        per copy; `past` says which lanes older policies play; `progress` is called with the steps as they are taken."""
        if len(seeds) != vector.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {vector.num_envs} environments: give one each")
        self.rng = rng
        """For exploration; its stream can be saved and restored between chunks."""
        self._past = past or PastPlayers(vector)
        self._vector = vector
        self._seats = [_Seated(seat, lanes) for seat, lanes in zip(seats, vector.lanes, strict=True)]
        self._seeds: list[int] | None = list(seeds)
        self._clock = clock
        self._progress = progress
        self._timers = timers or Timers()
        self._whole_slots = any(seat.rows.whole_slots for seat in seats)
        self._must_reset = True

    def collect(self, env_steps: int, turns: Sequence[Turn], *, longest_s: float | None = None) -> list[Collected]:
        """Take at least so many steps, rounded up to whole steps of the vector; where a policy learns from segments,
        exactly so many slots of time, resets included; elsewhere fewer, but at least one, once `longest_s` has passed.
        Returns a chunk for each policy.

        Raises CorruptExperienceError, MetricError, and whatever the environments or a policy raise.
        """
        if env_steps < 1:
            raise ValueError(f"a chunk has at least one step, not {env_steps}")
        started_s = self._clock()
        must_reset, self._must_reset = self._must_reset, True  # until these chunks are complete
        slots = -(-env_steps // self._vector.num_envs)
        slots = slots if self._whole_slots else 2 * slots + 1  # between two resets lies a step
        for seated in self._seats:
            seated.begin(slots)
        if must_reset:
            self._reset()
        try:
            end_s = np.inf if longest_s is None or self._whole_slots else started_s + longest_s
            taken = self._steps(env_steps, turns, slots - int(must_reset), end_s)
        except Exception:
            for seated in self._seats:
                seated.check()  # names the lane whose broken numbers a policy may have choked on
            raise
        for seated in self._seats:
            seated.check()  # before any chunk is made, so that all are made or none
        chunks = [
            seated.chunk(taken, turn, lambda: self._clock() - started_s)
            for seated, turn in zip(self._seats, turns, strict=True)
        ]
        self._must_reset = False
        return chunks

    def move(self, vector: AgentsVector, seeds: Sequence[int]) -> None:
        """Go on in other copies, as many, with the same groups; see Rollout.move."""
        self._vector, self._seeds, self._must_reset = vector, list(seeds), True
        self._past.move(vector)
        for seated, lanes in zip(self._seats, vector.lanes, strict=True):
            seated.move(lanes)

    def flush(self) -> list[Collected]:
        """Return the rows of each policy that wait for later steps, each ending at the last observation there is.
        Takes no step."""
        return [seated.flush() for seated in self._seats]

    def _reset(self) -> None:
        self._vector.reset(self._seeds)
        self._seeds = None  # a later reset goes on with the environments' random streams
        self._past.begin(self._vector.begun, self.rng)
        for seated, by_past in zip(self._seats, self._past.lanes, strict=True):
            seated.reset(by_past, self._vector.replaced)

    def _steps(self, env_steps: int, turns: Sequence[Turn], most_slots: int, end_s: float) -> int:
        """Step until `env_steps` steps were taken, in at most so many slots, and up to `end_s`; return how many."""
        vector, past, taken = self._vector, self._past, 0
        enough = np.inf if self._whole_slots else env_steps
        clock = self._clock if end_s < np.inf else lambda: 0.0
        acting, stepping = self._timers("act"), self._timers("step environments")
        for _ in range(most_slots):
            if taken >= enough or (taken and clock() >= end_s):
                break
            with acting:
                actions = [seated.act(turn, self.rng) for seated, turn in zip(self._seats, turns, strict=True)]
                told = past.replace(actions, [turn.exploration for turn in turns], self.rng)
            with stepping:
                stepped = vector.step(told)
            taken += stepped
            self._progress(stepped)
            past.begin(vector.begun, self.rng)
            for seated, acted, by_past in zip(self._seats, actions, past.lanes, strict=True):
                seated.replace(vector.replaced)
                seated.append(acted, by_past, past.against)
        return taken


class _Seated:
    """A policy at its lanes."""

    def __init__(self, seat: Seat, lanes: Lanes) -> None:
        group = lanes.group
        self._seat, self._lanes = seat, lanes
        self._recorder = Recorder(
            seat.policy, seat.rows, group.observation, group.action, num_envs=len(lanes), metrics=seat.metrics
        )
        self._first = True
        """There was no reset yet."""
        self._agents = group.agents
        self._columns = agent_columns(group.agents)
        self._info: dict[str, list[float]] = {}
        self._against: list[bool] = []
        """Of the episodes that ended in this chunk: whether they were against older policies."""

    def move(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def begin(self, slots: int) -> None:
        self._recorder.trace.begin(slots)
        self._recorder.replacements = Replacements()
        self._info = {name: [] for name in self._seat.episode_info}
        self._against = []

    def reset(self, by_past: Array, replaced: Array) -> None:
        self._recorder.replacements.count += int(np.count_nonzero(replaced))
        self._recorder.reset(self._lanes.observations)
        trace = self._recorder.trace
        trace.over[trace.end - 1] = ~self._lanes.live | by_past  # their next slot is no step
        self._note_legal(first=self._first)
        self._first = False

    def act(self, turn: Turn, rng: np.random.Generator) -> Array:
        trace = self._recorder.trace
        actions, recorded = self._seat.policy.act_recording(
            trace.observations[trace.end], turn.exploration, rng, legal=trace.legal_now(), state=trace.carry()
        )
        if recorded:
            trace.record(recorded)
        return actions

    def replace(self, replaced: Array) -> None:
        """These copies, bool [envs], broke in the newest step, and were made again: their episodes end before it."""
        if replaced.any():
            self._recorder.replacements.count += int(np.count_nonzero(replaced))
            self._recorder.replacements.cut(np.repeat(replaced, len(self._agents)), self._recorder.trace)

    def append(self, actions: Array, by_past: Array, against: Array) -> None:
        """The newest step of the vector was taken."""
        lanes, trace = self._lanes, self._recorder.trace
        real = ~trace.over[trace.end - 1]
        trace.append(actions, lanes.observations, lanes.reward, lanes.terminated & real, lanes.truncated & real)
        slot = trace.end - 1
        for lane in np.flatnonzero(trace.done[slot]).tolist():
            self._against.append(bool(against[lane // len(self._agents)]))
            for name, value in of_single(lanes.infos[lane], self._seat.episode_info).items():
                self._info[name].append(value)
        trace.over[slot] = ~lanes.live | by_past  # their next slot is no step
        self._note_legal()

    def _note_legal(self, *, first: bool = False) -> None:
        """Keep which actions are legal in the newest observations. Raises CorruptExperienceError."""
        components = self._recorder.components
        if components:
            self._recorder.note_legal(legal_of_each(self._lanes.infos, components=components), first=first)

    def check(self) -> None:
        """Raises CorruptExperienceError."""
        trace = self._recorder.trace
        self._recorder.check(trace.done[trace.new])

    def chunk(self, env_steps: int, turn: Turn, seconds: Callable[[], float]) -> Collected:
        trace = self._recorder.trace
        return self._recorder.chunk(
            self._seat.policy,
            env_steps,
            acted=turn.policy,
            ended=trace.done[trace.new],
            seconds=seconds,
            info=self._told,
            without_idle_rows=True,
        )

    def flush(self) -> Collected:
        return self._recorder.flush(without_idle_rows=True)

    def _told(self, returns: Array, lanes: Array) -> Mapping[str, list[float]]:
        """What else is known of the episodes with these returns, in these lanes."""
        agent = lanes % len(self._agents)
        own = {
            column: returns[agent == place].tolist()
            for place, column in enumerate(self._columns.values())
            if column in self._info
        }
        if AGAINST_PAST in self._info:
            own[AGAINST_PAST] = returns[np.array(self._against, np.bool_)].tolist()
        return {**self._info, **own}
