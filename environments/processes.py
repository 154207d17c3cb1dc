"""Copies of an environment in several processes, with results in shared memory, and the number of processes.

A step costs a byte in every direction: a process reads its actions from shared memory and writes its results there. The
process steps its part as LocalCopies do, and the output of its Python code is printed by the owner. The process ends
when the socket to its owner is closed, however the owner died.

A copy that raises an error, or returns unusable results, is replaced in its process. A copy that hangs, or ends its
process, costs all copies of the process: another process replaces them.
"""

from __future__ import annotations

import itertools
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from remuda.config.environment import EnvConfig
from remuda.config.errors import NoExit
from remuda.environments.errors import MOST_IN_A_ROW, BrokenEnvironmentError, Fault, shown_action
from remuda.environments.lanes import Copies, Group, Lanes, Vectorization
from remuda.environments.legal_actions import ACTION_MASK, sample_legal
from remuda.environments.process_peer import (
    RESET,
    STEP,
    EnvironmentProcessError,
    LostProcessError,
    Peer,
    ProcessStart,
    SharedStep,
    StepLayout,
)
from remuda.environments.seeding import replacement_seed
from remuda.environments.spaces import Array

Hangs = Callable[[float], bool]
"""True for the seconds of a step or reset that hangs."""


class ProcessCopies:
    """Steps `num_envs` copies in `processes` processes."""

    vectorization: Vectorization = "async"
    clips_rewards = False

    def __init__(
        self,
        env: EnvConfig,
        groups: Mapping[str, Group],
        *,
        num_envs: int,
        processes: int,
        source_dir: str | None,
        limit: Callable[[Fault], None],
        hangs: Hangs | None = None,
    ) -> None:
        """Raises EnvironmentProcessError.

        Args:
            processes: number of processes, with even shares of the copies.
            limit: receives each fault; raises to refuse a replacement.
            hangs: None for env.step_timeout_s.
        """
        self.num_envs, self.one_agent = num_envs, env.kind != "pettingzoo"
        self._name = str(env.id or env.make)
        self._limit = limit
        self._builds_too_long = _longer_than(env.build_timeout_s)
        self._hangs = hangs or _longer_than(env.step_timeout_s)
        layout = StepLayout.of(groups, num_envs=num_envs, names=len(env.episode_info))
        size = SharedStep(layout, None).nbytes
        self._descriptor = _anonymous_memory(size)
        self._shared = shared = SharedStep(layout, mmap.mmap(self._descriptor, size))
        self.begun, self.replaced = shared.begun, shared.replaced
        self.any_replaced = False
        self.lanes: tuple[Lanes, ...] = shared.lanes(list(groups.values()), range(num_envs))
        self._infos: list[Mapping[str, object]] = []
        for lanes, arrays in zip(self.lanes, shared.groups, strict=True):
            lanes.observations[:] = lanes.group.absent
            lanes.over[:] = True
            self._infos.append({name: arrays.episode_info[:, column] for column, name in enumerate(env.episode_info)})
        bounds = [num_envs * number // processes for number in range(processes + 1)]
        self._parts = [range(first, end) for first, end in itertools.pairwise(bounds)]
        self._starts = [ProcessStart.of(env, source_dir=source_dir, part=part, layout=layout) for part in self._parts]
        self._seeds: list[int | None] = [None] * num_envs
        self._lost_in_a_row = [0] * processes
        self._stepping = False
        """True if the present command is a step."""
        self._peers: list[Peer] = []
        try:
            for start in self._starts:
                self._peers.append(Peer(start, self._descriptor))
            for peer in self._peers:
                self._build(peer)
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: Sequence[int] | None) -> None:
        if seeds is not None:
            self._seeds = list(seeds)
        self._stepping = False
        for peer, part in zip(self._peers, self._parts, strict=True):
            peer.tell(RESET, msgspec.json.encode(None if seeds is None else [seeds[index] for index in part]))
        self._finish()

    def step(self, actions: Sequence[Array]) -> int:
        """See Copies. Raises BrokenEnvironmentError if a copy breaks beyond the limits, and EnvironmentProcessError if
        a process cannot continue."""
        for arrays, acted in zip(self._shared.groups, actions, strict=True):
            arrays.actions[:] = acted
        self._stepping = True
        for peer in self._peers:
            peer.tell(STEP)
        self._finish()
        return self.num_envs - int(np.count_nonzero(self.begun))

    def tell_legal_actions(self) -> None:
        self._shared.wants_legal[0] = True

    def close(self) -> None:
        """End the processes."""
        for peer in self._peers:
            peer.hang_up()
        for peer in self._peers:
            peer.end()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _finish(self) -> None:
        """Wait for all processes, and replace lost processes."""
        faults: list[Fault] = []
        lost: dict[int, LostProcessError] = {}
        failed: list[EnvironmentProcessError] = []
        for number, peer in enumerate(self._peers):
            try:
                faults += peer.wait(self._patience(number))
                self._lost_in_a_row[number] = 0
            except LostProcessError as error:
                lost[number] = error
            except EnvironmentProcessError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        self._count(faults)
        for number, ended in lost.items():
            self._start_another(number, ended)
        self.any_replaced = bool(faults or lost)
        for lanes, arrays, info in zip(self.lanes, self._shared.groups, self._infos, strict=True):
            lanes.masked = bool(arrays.tells_legal.any())
            told = {ACTION_MASK: arrays.legal, f"_{ACTION_MASK}": arrays.tells_legal}
            lanes.info = {**info, **told} if lanes.masked else info

    def _patience(self, number: int) -> Hangs:
        """Return the limit for one process, with several copies stepped in turn."""
        first, since_s = self._parts[number].start, 0.0
        stepping = int(self._shared.stepping[first])

        def hangs(waited_s: float) -> bool:
            nonlocal stepping, since_s
            now = int(self._shared.stepping[first])
            if now != stepping:
                stepping, since_s = now, waited_s
            return self._hangs(waited_s - since_s)

        return hangs

    def _count(self, faults: Iterable[Fault]) -> None:
        """Note faults of environments made again in their process. Raises the errors of the limit."""
        for fault in faults:
            self._seeds[fault.env_index] = fault.fresh_seed
        for fault in faults:
            try:
                self._limit(fault)
            except BrokenEnvironmentError as error:
                error.add_note(f"In its process:\n{fault.traceback}")
                raise

    def _start_another(self, number: int, lost: LostProcessError) -> None:
        """Start a replacement for a lost process, with fresh seeds, until its environments are reset. Raises the errors
        of the limit."""
        while True:
            fault = self._fault(number, lost)
            self._lost_in_a_row[number] += 1
            if self._lost_in_a_row[number] >= MOST_IN_A_ROW:
                raise BrokenEnvironmentError(
                    f"{fault.text()}; it is not made again: {MOST_IN_A_ROW} times in a row it broke without a good step"
                ) from lost
            self._limit(fault)
            part = self._parts[number]
            for index in part:
                seed = self._seeds[index]
                self._seeds[index] = None if seed is None else replacement_seed(seed)
            self._shared.stepping[part.start] = part.start
            peer = self._peers[number] = Peer(self._starts[number], self._descriptor)
            self._build(peer)
            seeds = [self._seeds[index] for index in part]
            peer.tell(RESET, msgspec.json.encode(None if None in seeds else seeds))
            try:
                faults = peer.wait(self._patience(number))
            except LostProcessError as again:
                lost, self._stepping = again, False
                continue
            self._count(faults)
            self.begun[part.start : part.stop] = self.replaced[part.start : part.stop] = True
            return

    def _build(self, peer: Peer) -> None:
        """Wait until the copies of a process are built. Raises EnvironmentProcessError."""
        try:
            peer.wait(self._builds_too_long, setting="env.build_timeout_s")
        except LostProcessError as lost:
            raise EnvironmentProcessError(f"{peer.environments} ({self._name}) could not be built: {lost}") from lost

    def _fault(self, number: int, lost: LostProcessError) -> Fault:
        """Return the fault of the copy stepped by the process when it was lost."""
        part = self._parts[number]
        index = int(self._shared.stepping[part.start])
        index = index if index in part else part.start
        seed = self._seeds[index]
        shared = f", with environments {part.start} to {part.stop - 1} in its process" if len(part) > 1 else ""
        return Fault(
            env_index=index,
            env=self._name,
            seed=seed,
            where=f"in a {'step' if self._stepping else 'reset'}{shared}",
            action=shown_action(self._acted(index)) if self._stepping else "",
            problem=str(lost),
            fresh_seed=None if seed is None else replacement_seed(seed),
        )

    def _acted(self, index: int) -> object:
        """Return the newest actions of a copy, for people."""
        pairs = zip(self.lanes, self._shared.groups, strict=True)
        acted = [arrays.actions[lane] for lanes, arrays in pairs for lane in lanes.of_copy(index)]
        return acted[0] if self.one_agent else acted


def _longer_than(limit_s: float | None) -> Hangs:
    return lambda waited_s: limit_s is not None and waited_s >= limit_s


def _anonymous_memory(size: int) -> int:
    """Return a file descriptor of memory, freed with its last user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("remuda-environments")
    else:
        with tempfile.TemporaryFile(dir=Path(tempfile.gettempdir())) as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


ROUND_TRIP_S = 200e-6
"""Assumed cost of sending a step to processes and waiting for them (measured: 100 us)."""
WORTH_IT = 1.3
"""Least expected speedup for using processes: smaller gains are within the noise, and objects need less memory."""

_STEPS = 20
_LONGEST_S = 1.0

StepTimer: TypeAlias = Callable[[Copies], float]
"""Steps a copy a few times; returns the seconds of a step."""


def time_step(copies: Copies, *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median duration of a few random steps of a copy by legal actions, in seconds; resets are not timed.

    Takes fewer steps if they last longer than a second in total. Raises errors of the environment.
    """
    for lanes in copies.lanes:
        lanes.group.action.seed(0)
    copies.reset([0])
    durations_s: list[float] = []
    while len(durations_s) < _STEPS and sum(durations_s) < _LONGEST_S:
        actions = [_random_actions(lanes) for lanes in copies.lanes]
        start_s = clock()
        copies.step(actions)
        durations_s.append(clock() - start_s)
        if all(lanes.over.all() for lanes in copies.lanes):
            copies.reset(None)
    return statistics.median(durations_s)


def _random_actions(lanes: Lanes) -> Array:
    space = lanes.group.action
    assert isinstance(lanes.info, list)
    return np.array([sample_legal(space, info) for info in lanes.info], space.dtype)


def choose_processes(
    env: EnvConfig,
    build: Callable[[], Copies],
    *,
    num_envs: int,
    sharers: int,
    chosen: Callable[[str], None],
    timer: StepTimer = time_step,
) -> tuple[int, Sequence[Group]]:
    """Choose the number of processes for the copies, 0 for none; return the groups for processes, too.

    Builds a copy if processes are possible, times the copy with `timer`, and closes it. Raises errors of `build`.
    """
    cores = usable_cores()
    fair_share = max(cores // sharers, 1)
    if env.vectorization == "sync" or (env.vectorization == "auto" and min(fair_share, num_envs) < 2):
        chosen("environments: sync, objects in one process")
        return 0, ()
    copy = build()
    try:
        groups = [lanes.group for lanes in copy.lanes]
        if env.vectorization == "async":
            processes, why = min(cores, num_envs), "as the config says"
        else:
            processes, why = _timed(copy, timer, num_envs, fair_share)
    finally:
        copy.close()
    how = f"async, {processes} processes" if processes else "sync, objects in one process"
    chosen(f"environments: {how}, {why}")
    return processes, groups


def _timed(copy: Copies, timer: StepTimer, num_envs: int, cores: int) -> tuple[int, str]:
    """Return the number of processes and the reason."""
    try:
        with NoExit():
            step_s = timer(copy)
    except Exception as error:  # an environment that always fails will do so again where failures are counted
        return 0, f"since a copy could not be timed: {type(error).__name__}: {error}"
    processes = processes_for(step_s, num_envs=num_envs, cores=cores)
    return processes, f"since a step takes {step_s * 1e6:.0f} us and {num_envs} may share {cores} cores"


def processes_for(step_s: float, *, num_envs: int, cores: int) -> int:
    """Return the best number of processes for `num_envs` environments with steps of `step_s` seconds; 0 for none.

    Objects in one process take num_envs steps in turn; processes divide the steps evenly and cost a round trip.
    """
    processes = min(cores, num_envs)
    if processes < 2:
        return 0
    in_turn_s = num_envs * step_s
    shared_out_s = -(-num_envs // processes) * step_s + ROUND_TRIP_S
    return processes if in_turn_s >= WORTH_IT * shared_out_s else 0


def usable_cores() -> int:
    """Return the number of cores allowed by the operating system for this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
