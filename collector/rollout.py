"""Steps copies of an environment with its policies. The experience of each agent goes into the chunk of its policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from remuda.collector.collected import Collected
from remuda.collector.opponents import OpponentLanes
from remuda.collector.recorder import Behavior, PolicyLanes, PolicySetup
from remuda.environments.lanes import Copies
from remuda.environments.spaces import Array
from remuda.logbook.timers import Timers


class Collects(Protocol):
    """Makes chunks; see Rollout."""

    rng: np.random.Generator

    def collect(
        self, env_steps: int, behaviors: Sequence[Behavior], *, longest_s: float | None = None
    ) -> list[Collected]:
        """Return a chunk for each policy; empty if nothing more comes."""
        ...

    def move(self, copies: Copies, seeds: Sequence[int]) -> None:
        """Continue in other copies."""
        ...

    def flush(self) -> list[Collected]:
        """Return what waits for later steps."""
        ...


class Rollout:
    """Collects a chunk for each policy at once, from copies that reset in gymnasium's NEXT_STEP mode.

    The step after the end of an episode is its reset: neither counted nor made a row. A row needs the n steps after it
    (fewer at the end of an episode), so the last rows of a chunk come with the next one: over a rollout that ends with
    `flush`, rows and environment steps are equal in number, none lost and none twice. A truncated episode bootstraps
    from its last observation, a terminated one does not (Pardo et al. 2018).

    Each agent of a copy is a lane of its policy. A lane begins with the copy's reset, ends when the agent leaves, and
    rests until the next episode. A step of a copy counts once, as an environment step of every policy. Each step of an
    agent by the newest policy gives one row of single-step experience, or one valid slot of a segment or sequence;
    lanes of older policies (see OpponentLanes) give none. Sequences of several agents without any valid slot are left
    out. A chunk has a segment of each lane, also of absent agents, or no segment at all if none has a valid slot.

    A broken copy is replaced: its episode is truncated by the step before, and has no return. The step itself is a
    reset.

    When `collect` raises, its chunks never happened: none of their steps is counted anywhere. Waiting rows of earlier
    chunks are kept and end at the last observation before the failure; current episodes are abandoned; the next
    `collect` starts with a reset of all copies, which raises again if they are beyond repair.
    """

    def __init__(
        self,
        copies: Copies,
        policies: Sequence[PolicySetup],
        *,
        rng: np.random.Generator,
        seeds: Sequence[int],
        opponents: OpponentLanes | None = None,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[int], None] = lambda env_steps: None,
        timers: Timers | None = None,
    ) -> None:
        """`policies` are in the order of the groups of the copies; `rng` is for exploration of all policies; `seeds`
        has one for each copy; `opponents` are the lanes of older policies; `clock` returns seconds; `progress` receives
        the number of new steps."""
        if len(seeds) != copies.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {copies.num_envs} environments: give one each")
        self.rng = rng
        """For exploration; its state can be saved and restored between chunks."""
        self._copies, self._opponents = copies, opponents
        self._policies = [
            PolicyLanes(
                setup, lanes, one_agent=copies.one_agent, by_past=None if opponents is None else opponents.lanes[index]
            )
            for index, (setup, lanes) in enumerate(zip(policies, copies.lanes, strict=True))
        ]
        self._seeds: list[int] | None = list(seeds)
        self._clock = clock
        self._progress = progress
        self._timers = timers or Timers()
        self._whole_slots = any(setup.rows.whole_slots for setup in policies)
        self._must_reset = True
        self._tell_legal_actions()

    def collect(
        self, env_steps: int, behaviors: Sequence[Behavior], *, longest_s: float | None = None
    ) -> list[Collected]:
        """Take at least `env_steps` steps, rounded up to whole steps of all copies, each policy with its behavior. If a
        policy learns from segments, take exactly so many slots of time, resets included. Otherwise chunks end sooner,
        but with at least one step, after `longest_s`. Returns a chunk for each policy.

        Raises CorruptExperienceError, MetricError, and errors of environments and policies (see the class).
        """
        if env_steps < 1:
            raise ValueError(f"a chunk has at least one step, not {env_steps}")
        started_s = self._clock()
        must_reset, self._must_reset = self._must_reset, True  # until these chunks are complete
        slots = -(-env_steps // self._copies.num_envs)
        slots = slots if self._whole_slots else 2 * slots + 1  # between two resets lies a step
        policies = self._policies
        for one in policies:
            one.begin(slots)
        if must_reset:
            self._reset()
        try:
            end_s = np.inf if longest_s is None or self._whole_slots else started_s + longest_s
            taken = self._steps(env_steps, behaviors, slots - int(must_reset), end_s)
        except Exception:
            for one in policies:
                one.check()  # names the lane whose broken numbers a policy may have choked on
            raise
        if len(policies) > 1:
            for one in policies:
                one.check()  # before any chunk is made, so that all are made or none
        chunks = [
            one.chunk(taken, behavior, lambda: self._clock() - started_s, clips_rewards=self._copies.clips_rewards)
            for one, behavior in zip(policies, behaviors, strict=True)
        ]
        self._must_reset = False
        return chunks

    def move(self, copies: Copies, seeds: Sequence[int]) -> None:
        """Continue in other copies, of equal number and groups. Current episodes are abandoned: their rows end with the
        last observation, as if truncated, without a return."""
        self._copies, self._seeds, self._must_reset = copies, list(seeds), True
        if self._opponents is not None:
            self._opponents.move(copies)
        for one, lanes in zip(self._policies, copies.lanes, strict=True):
            one.lanes = lanes
        self._tell_legal_actions()

    def flush(self) -> list[Collected]:
        """Return the waiting rows of each policy, each cut at the last observation: for the end of a lease. Takes no
        step. The rollout can continue afterwards."""
        return [one.flush() for one in self._policies]

    @property
    def seen_dtypes(self) -> list[str]:
        """Dtype of the observations of each policy, as collected."""
        return [one.seen_dtype for one in self._policies]

    def _tell_legal_actions(self) -> None:
        if any(one.components for one in self._policies):
            self._copies.tell_legal_actions()

    def _reset(self) -> None:
        self._copies.reset(self._seeds)
        self._seeds = None  # a later reset goes on with the environments' random streams
        if self._opponents is not None:
            self._opponents.begin(self._copies.begun, self.rng)
        replaced = int(np.count_nonzero(self._copies.replaced))
        for one in self._policies:
            one.reset(replaced)

    def _steps(self, env_steps: int, behaviors: Sequence[Behavior], most_slots: int, end_s: float) -> int:
        """Step until `env_steps` steps, `most_slots` slots or the time `end_s`; return the number of steps."""
        copies, opponents, rng, progress, taken = self._copies, self._opponents, self.rng, self._progress, 0
        pairs = [*zip(self._policies, [one.exploration for one in behaviors], strict=True)]
        only = self._policies[0] if len(pairs) == 1 and opponents is None else None
        exploration = behaviors[0].exploration
        enough = np.inf if self._whole_slots else env_steps
        clock = self._clock if end_s < np.inf else lambda: 0.0
        played: Sequence[Array]
        acting, stepping = self._timers("act"), self._timers("step environments")
        for _ in range(most_slots):
            if taken >= enough or (taken and clock() >= end_s):
                break
            with acting:
                if only is not None:
                    played = actions = [only.act(exploration, rng)]
                else:
                    played = actions = [one.act(own, rng) for one, own in pairs]
                    if opponents is not None:
                        played = opponents.replace(actions, [own for _, own in pairs], rng)
            with stepping:
                stepped = copies.step(played)
            taken += stepped
            progress(stepped)
            if only is not None:
                if copies.any_replaced:
                    only.replace(copies.replaced)
                only.append(actions[0], None)
                continue
            if opponents is not None:
                opponents.begin(copies.begun, rng)
            for (one, _), acted in zip(pairs, actions, strict=True):
                if copies.any_replaced:
                    one.replace(copies.replaced)
                one.append(acted, None if opponents is None else opponents.against)
        return taken
