"""Training episodes of a run played again from their recorded actions, and compared with the record to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from remuda.client.episodes import Episode, Record
from remuda.collector.environments import seeds_of
from remuda.collector.steps import (
    OVER,
    REAL,
    RESET,
    TERMINATED,
    Part,
    Steps,
    fingerprints,
    newest_images,
)
from remuda.config.current import on_task
from remuda.environments.atari import is_atari
from remuda.environments.copies import LocalCopies, local_copies
from remuda.environments.errors import EnvironmentBuildError, RestartLimit
from remuda.environments.films import Camera
from remuda.environments.lanes import Copies
from remuda.environments.make import known_spec, make_parallel, make_single
from remuda.environments.rebuild import distrusted_environment, trusted_source_dir
from remuda.environments.seeding import incarnation_at
from remuda.environments.spaces import Array
from remuda.environments.vectors import VectorCopies, make_vector
from remuda.storage.run_folder import RunFolder
from remuda.storage.untrusted import json_of, read_bounded

_BLOCK_SLOTS = 256
"""Slots compared at once."""
_MOST_SPEC_BYTES = 16 << 20


@dataclass(frozen=True)
class Difference:
    """The first difference between a copy's record and its replay."""

    slot: int
    what: str
    """`observation`, `reward`, `end` or `replaced`."""
    text: str


@dataclass(frozen=True)
class Step:
    """A step of an episode, as played again, by agent."""

    number: int
    """0 is the reset, which has neither actions nor rewards."""
    actions: Mapping[str, object]
    rewards: Mapping[str, float]
    observations: Mapping[str, object]
    """After the step."""
    policy_version: int
    """Of the first policy."""


class Replayer:
    """Plays parts of a record again."""

    def __init__(self, record: Record, *, trust_code: bool = False, render_mode: str | None = None) -> None:
        """Raises EnvironmentBuildError if code in the run folder is not trusted."""
        self.record, self._mode = record, render_mode
        config = record.config
        self._source_dir = config.source_dir
        if not trust_code:
            refused = distrusted_environment(config.env, source_dir=self._source_dir, run_dir=record.run_dir)
            if refused is not None:
                raise EnvironmentBuildError(refused)
            self._source_dir = trusted_source_dir(self._source_dir, run_dir=record.run_dir)
        self._vectorization = _vectorization(record.run_dir)

    def play(
        self,
        part: Part,
        end: int,
        only: Sequence[int] | None = None,
        *,
        watched: Episode | None = None,
        camera: Callable[[Any], Camera] | None = None,
        stepped: Callable[[Step], None] = lambda step: None,
        progressed: Callable[[int], None] = lambda slot: None,
    ) -> Mapping[int, Difference]:
        """Play the slots up to `end`, and return the first difference of each copy that differs.

        Args:
            only: copies to play; None: all. Vectors in C play all copies.
            watched: an episode for `camera` and `stepped`.
            camera: makes a camera for what `watched` renders.
            stepped: receives the reset and each step of `watched`, after its picture was taken.
            progressed: receives the number of played slots, after each.

        Raises EnvironmentBuildError, and errors of the environment.
        """
        copies, chosen = self._copies(part, only)
        try:
            seen = _Watch(copies, chosen, watched, camera, stepped)
            return _played(self._seeds(part), part, copies, chosen, end, seen, progressed)
        finally:
            copies.close()

    def _seeds(self, part: Part) -> list[int]:
        incarnation = incarnation_at(part.generation, part.task)
        return seeds_of(on_task(self.record.config, part.kwargs_json), part.index, incarnation)

    def _copies(self, part: Part, only: Sequence[int] | None) -> tuple[Copies, Sequence[int]]:
        """Return copies, and their numbers in the part."""
        config, everything = on_task(self.record.config, part.kwargs_json), range(part.num_envs)
        env, mode = config.env, self._mode
        if self._vectorization in ("native", "envpool"):
            drawn = {} if mode is None or is_atari(known_spec(env)) else {"render_mode": mode}
            known = env.model_copy(update={"vectorization": self._vectorization, "kwargs": {**env.kwargs, **drawn}})
            vector = make_vector(known, num_envs=part.num_envs, source_dir=self._source_dir)
            if vector is None:
                raise EnvironmentBuildError(f"{env.id} is not stepped as a vector here, and was in the run")
            return VectorCopies(vector, str(env.id)), everything
        chosen = everything if only is None else sorted(only)
        several = env.kind == "pettingzoo"
        make = make_parallel if several else make_single
        build = partial(make, env, source_dir=self._source_dir, **({} if mode is None else {"render_mode": mode}))
        assigned = {one.name: one.agents for one in part.policies}
        limit = RestartLimit(env.restarts_per_hour, lambda text: None)
        indices = range(len(chosen))
        made = local_copies(env, assigned, indices, source_dir=self._source_dir, limit=limit, build=build)
        return made, chosen


def _vectorization(run_dir: Path) -> str:
    """Return the chosen vectorization of the run's collectors."""
    try:
        spec = cast(
            "Mapping[str, object]", json_of(read_bounded(RunFolder(run_dir).env_spec, most_bytes=_MOST_SPEC_BYTES))
        )
        return str(spec.get("vectorization", "sync"))
    except (OSError, ValueError, AttributeError):
        return "sync"


class _Watch:
    """Shows an episode while it is played."""

    def __init__(
        self,
        copies: Copies,
        chosen: Sequence[int],
        episode: Episode | None,
        camera: Callable[[Any], Camera] | None,
        stepped: Callable[[Step], None],
    ) -> None:
        self._copies, self._episode, self._stepped = copies, episode, stepped
        self._at = -1 if episode is None else list(chosen).index(episode.copy)
        self._camera = None if camera is None or episode is None else camera(_rendered(copies, self._at))

    def look(self, slot: int, acted: Sequence[Array]) -> None:
        """Process a played slot with these actions [lanes, …] of each policy."""
        episode = self._episode
        if episode is None or not episode.begin <= slot <= episode.end:
            return
        is_reset = slot == episode.begin
        if self._camera is not None and is_reset:
            self._camera.began()
        elif self._camera is not None:
            self._camera.stepped(over=slot == episode.end)
        lanes = [
            (agent, lane, one, actions)
            for one, actions in zip(self._copies.lanes, acted, strict=True)
            for agent, lane in zip(one.group.agents, one.of_copy(self._at), strict=True)
        ]
        self._stepped(
            Step(
                slot - episode.begin,
                {} if is_reset else {agent: actions[lane].tolist() for agent, lane, _, actions in lanes},
                {} if is_reset else {agent: float(one.reward[lane]) for agent, lane, one, _ in lanes},
                {agent: one.observations[lane].tolist() for agent, lane, one, _ in lanes},
                episode.part.chunk_of(slot)[4],
            )
        )


class _OfVector:
    """Pictures of one copy of a vector: rendered by the vector, else the newest image that the policy sees."""

    def __init__(self, copies: VectorCopies, at: int) -> None:
        self._copies, self._at = copies, at
        self.metadata: Any = copies.vector.metadata
        self.render_mode = "rgb_array"

    def render(self) -> Any:
        """Return the picture, [height, width, 3]."""
        seen: Array = self._copies.lanes[0].observations[self._at]
        if seen.dtype == np.uint8 and seen.ndim == 3:
            return np.repeat(seen[-1][:, :, None], 3, axis=2)
        pictures: Any = self._copies.vector.render()
        return None if pictures is None else pictures[self._at]


def _rendered(copies: Copies, at: int) -> Any:
    if isinstance(copies, LocalCopies):
        return copies.envs[at].env  # of the ReplaceableEnv
    assert isinstance(copies, VectorCopies)
    return _OfVector(copies, at)


def _played(
    seeds: Sequence[int],
    part: Part,
    copies: Copies,
    chosen: Sequence[int],
    end: int,
    watch: _Watch,
    progressed: Callable[[int], None],
) -> Mapping[int, Difference]:
    """Play the slots before `end`; return the first difference of each copy, by its number in the part."""
    counts = [len(one.agents) for one in part.policies]
    lanes_of = [[copy * agents + agent for copy in chosen for agent in range(agents)] for agents in counts]
    recorded = [
        Steps(one.actions[:, lanes], one.reward[:, lanes], one.seen[:, lanes], one.flags[:, lanes])
        for one, lanes in zip((each.steps for each in part.policies), lanes_of, strict=True)
    ]
    dtypes = [one.seen_dtype for one in part.policies]
    over = [np.ones(len(lanes), np.bool_) for lanes in lanes_of]
    found: dict[int, Difference] = {}
    for begin in range(0, end, _BLOCK_SLOTS):
        stop = min(begin + _BLOCK_SLOTS, end)
        slots: list[list[tuple[Array, ...]]] = [[] for _ in recorded]
        for slot in range(begin, stop):
            acted = [
                one.actions[slot].astype(lanes.group.action.dtype, copy=False)
                for one, lanes in zip(recorded, copies.lanes, strict=True)
            ]
            if all((one.flags[slot] & RESET).all() for one in recorded):
                copies.reset([seeds[copy] for copy in chosen] if slot == 0 else None)
                by_reset = True
            else:
                copies.step(acted)
                by_reset = False
            watch.look(slot, acted)
            for at, lanes in enumerate(copies.lanes):
                taken = _slot(copies, at, over[at], dtypes[at], by_reset=by_reset)
                slots[at].append(taken)
                over[at] = lanes.over.copy()
            progressed(slot + 1)
        for at, played in enumerate(slots):
            now = [np.stack(column) for column in zip(*played, strict=True)]
            for copy, difference in _differences(recorded[at].part(begin, stop), now, begin, chosen, counts[at]):
                if copy not in found or difference.slot < found[copy].slot:
                    found[copy] = difference
        if len(found) == len(chosen):
            break  # nothing is left to compare
    return found


def _slot(copies: Copies, at: int, over: Array, dtype: np.dtype[Any], *, by_reset: bool) -> tuple[Array, ...]:
    """Return flags, reward and observations of the newest step, as a collector keeps them."""
    lanes = copies.lanes[at]
    begun = np.repeat(copies.begun, len(lanes.group.agents))
    real = ~(over | begun)
    flags: Array = real * np.uint8(REAL) + lanes.over * np.uint8(OVER)
    flags = flags + (lanes.over & lanes.terminated) * np.uint8(TERMINATED)
    if by_reset:
        flags = np.full_like(flags, RESET)
    return flags, np.where(real, lanes.reward, 0.0).astype(np.float64), lanes.observations.astype(dtype)


def _differences(
    recorded: Steps, now: Sequence[Array], begin: int, chosen: Sequence[int], agents: int
) -> Iterator[tuple[int, Difference]]:
    """Yield the first difference of each copy in these slots, and the number of the copy."""
    flags, reward, observations = now
    ends = flags != recorded.flags
    rewards = reward.view(np.uint64) != recorded.reward.view(np.uint64)
    observed = fingerprints(newest_images(observations)) != recorded.seen
    for position, copy in enumerate(chosen):
        own = slice(position * agents, (position + 1) * agents)
        wrong = (ends[:, own] | rewards[:, own] | observed[:, own]).any(axis=1)
        if not wrong.any():
            continue
        slot = int(np.flatnonzero(wrong)[0])
        lane = own.start + int(np.flatnonzero((ends | rewards | observed)[slot, own])[0])
        yield copy, _difference(recorded, now, (ends, rewards, observed), slot, lane, begin)


def _difference(
    recorded: Steps, now: Sequence[Array], differ: Sequence[Array], slot: int, lane: int, begin: int
) -> Difference:
    flags, reward, observations = now
    ends, rewards, observed = (bool(one[slot, lane]) for one in differ)
    if rewards:
        text = f"the reward is {float(reward[slot, lane])!r} and was {float(recorded.reward[slot, lane])!r}"
        return Difference(begin + slot, "reward", text)
    if observed:
        shown = json.dumps(observations[slot, lane].tolist())
        return Difference(begin + slot, "observation", f"the observation is another: {shown[:100]}")
    assert ends
    before = int(recorded.flags[slot, lane])
    return Difference(begin + slot, "end", f"the episode {_end(int(flags[slot, lane]))}, and {_end(before)} in the run")


def _end(flags: int) -> str:
    if not flags & REAL:
        return "begins"
    return "goes on" if not flags & OVER else "terminates" if flags & TERMINATED else "is truncated"


@dataclass(frozen=True)
class Outcome:
    """An episode played again."""

    episode: Episode
    difference: str | None
    """None: every reward, observation and end is equal to the bit. Else the first difference, or the reason why the
    episode could not be reached."""
    step: int | None = None
    """Step of the difference within the episode; None if an earlier episode of the copy differs."""


def replay(replayer: Replayer, episodes: Sequence[Episode], progressed: Callable[[int], None]) -> list[Outcome]:
    """Play these episodes again, with everything before them in their copies, and compare them with the record.
    `progressed` receives the number of compared episodes."""
    outcomes: list[Outcome] = []
    for part in {id(one.part): one.part for one in episodes}.values():
        own = [one for one in episodes if one.part is part]
        copies: Set[int] = {one.copy for one in own}
        found = replayer.play(part, max(one.end for one in own) + 1, sorted(copies))
        outcomes += [_outcome(one, found.get(one.copy), replayer.record) for one in own]
        progressed(len(outcomes))
    order = {one.id: at for at, one in enumerate(episodes)}
    return sorted(outcomes, key=lambda one: order[one.episode.id])


def watch(
    replayer: Replayer,
    episode: Episode,
    stepped: Callable[[Step], None],
    *,
    camera: Callable[[Any], Camera] | None = None,
    progressed: Callable[[int], None] = lambda slot: None,
) -> Outcome:
    """Play an episode again, as `replay` does, and look at it; see `Replayer.play`. Ends soon after a difference."""
    found = replayer.play(
        episode.part,
        episode.end + 1,
        [episode.copy],
        watched=episode,
        camera=camera,
        stepped=stepped,
        progressed=progressed,
    )
    return _outcome(episode, found.get(episode.copy), replayer.record)


def blamed(record: Record) -> str:
    """Return a sentence about the reason of differences."""
    env = record.config.env.id or record.config.env.make
    return (
        f"{env} does not repeat itself here: it is not deterministic, or its code or packages have changed "
        "(manifest.json)."
    )


def _outcome(episode: Episode, difference: Difference | None, record: Record) -> Outcome:
    if difference is None or difference.slot > episode.end:
        return Outcome(episode, None)
    if difference.slot < episode.begin:
        before = [one for one in record.episodes if one.part is episode.part and one.copy == episode.copy]
        first = next((one for one in before if difference.slot <= one.end), episode)
        text = f"not reached: {first.id} of its copy differs in step {difference.slot - first.begin}: {difference.text}"
        return Outcome(episode, text)
    step = difference.slot - episode.begin
    return Outcome(episode, f"step {step}: {difference.text}", step)
