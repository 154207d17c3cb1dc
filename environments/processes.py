"""Environments in several processes: each steps a part of the vector, with results in shared memory.

A step costs a byte in each direction: the process reads its actions from shared memory and writes its results there.
Its part is gymnasium's SyncVectorEnv, so that it behaves like objects in one process, and the output of its Python code
is printed by the owner. It ends when the socket to its owner is closed, however the owner died.

An environment that raises, or returns what cannot be learned from, is made again in its process. One that hangs, or
ends its process, costs all that are in it: another process takes their place.
"""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from remuda.config.environment import EnvConfig
from remuda.environments.faults import MOST_IN_A_ROW, REPLACED, BrokenEnvironmentError, Fault, shown_action
from remuda.environments.legal_actions import ACTION_MASK, components_of
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
from remuda.environments.spaces import Array, Space

Hangs = Callable[[float], bool]
"""Whether an environment that has taken so many seconds for one step or reset hangs."""


class ProcessVector(VectorEnv[Array, Array, Array]):
    """Steps `num_envs` environments in `processes` processes; resets as in AutoresetMode.NEXT_STEP.

    The `info` that is returned has the names in env.episode_info, with nan where nothing is reported, action masks once
    somebody has asked for them, and REPLACED where environments were made again.
    """

    def __init__(
        self,
        env: EnvConfig,
        *,
        num_envs: int,
        processes: int,
        source_dir: str | None,
        spaces: tuple[Space, Space],
        limit: Callable[[Fault], None],
        hangs: Hangs | None = None,
    ) -> None:
        """Raises EnvironmentProcessError.

        Args:
            env: their config.
            num_envs: how many there are.
            processes: which they share evenly.
            source_dir: where the module of env.make is looked up first.
            spaces: one environment's, observation and action.
            limit: is called with each fault; raises where the environment must not be made again.
            hangs: None for env.step_timeout_s.
        """
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space, self.action_space = (batch_space(space, num_envs) for space in spaces)
        self._has_masks = bool(components_of(spaces[1]))
        self._episode_info = env.episode_info
        self._name = str(env.id or env.make)
        self._limit = limit
        self._hangs = hangs or _longer_than(env.step_timeout_s)
        layout = StepLayout.of(*spaces, num_envs=num_envs, episode_info=len(env.episode_info))
        self._descriptor = _anonymous_memory(layout.nbytes)
        self._shared = SharedStep(layout, mmap.mmap(self._descriptor, layout.nbytes))
        bounds = [num_envs * number // processes for number in range(processes + 1)]
        self._slices = [slice(first, end) for first, end in itertools.pairwise(bounds)]
        self._starts = [ProcessStart.of(env, source_dir=source_dir, part=part, layout=layout) for part in self._slices]
        self._seeds: list[int | None] = [None] * num_envs
        self._lost_in_a_row = [0] * processes
        self._stepping = False
        """Whether the present command is a step."""
        self._peers: list[Peer] = []
        try:
            for start in self._starts:
                self._peers.append(Peer(start, self._descriptor))
            for peer in self._peers:
                _build(peer)
        except BaseException:
            self.close()
            raise

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset all environments; a list has one seed for each, a number is the first of consecutive seeds."""
        seeds = [seed + index for index in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is not None:
            self._seeds = list(seeds)
        self._stepping = False
        for peer, part in zip(self._peers, self._slices, strict=True):
            peer.tell(RESET, msgspec.json.encode(None if seeds is None else seeds[part]))
        replaced = self._finish()
        return self._shared.observations.copy(), self._action_masks() | replaced

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Step all environments. Raises BrokenEnvironmentError if one breaks beyond the limits, and
        EnvironmentProcessError if a process cannot go on."""
        self.send(actions)
        return self.receive()

    def send(self, actions: Array) -> None:
        """Start a step in all environments, and return at once."""
        self._shared.actions[:] = actions
        self._stepping = True
        for peer in self._peers:
            peer.tell(STEP)

    def receive(self) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Wait for the end of the step that `send` started."""
        replaced = self._finish()
        shared = self._shared
        info = {name: shared.episode_info[:, column].copy() for column, name in enumerate(self._episode_info)}
        return (
            shared.observations.copy(),
            shared.reward.copy(),
            shared.terminated.copy(),
            shared.truncated.copy(),
            info | self._action_masks() | replaced,
        )

    def tell_legal_actions(self) -> None:
        """Put action masks into `info` from now on, where environments have them and actions are counted."""
        self._shared.wants_legal[0] = self._has_masks

    def _action_masks(self) -> dict[str, Any]:
        shared = self._shared
        if not shared.tells_legal.any():
            return {}
        return {ACTION_MASK: shared.legal.copy(), f"_{ACTION_MASK}": shared.tells_legal.copy()}

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        for peer in self._peers:
            peer.hang_up()
        for peer in self._peers:
            peer.end()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _finish(self) -> dict[str, Any]:
        """Wait for all processes; returns what `info` says of environments that were made again."""
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
        if not faults and not lost:
            return {}
        self._count(faults)
        for number, ended in lost.items():
            self._start_another(number, ended)
        indices = [fault.env_index for fault in faults]
        return _replaced(self.num_envs, [*indices, *(index for number in lost for index in self._part(number))])

    def _patience(self, number: int) -> Hangs:
        """For one process, whose environments take their steps one after the other."""
        first, since_s = self._slices[number].start, 0.0
        stepping = int(self._shared.stepping[first])

        def hangs(waited_s: float) -> bool:
            nonlocal stepping, since_s
            now = int(self._shared.stepping[first])
            if now != stepping:
                stepping, since_s = now, waited_s
            return self._hangs(waited_s - since_s)

        return hangs

    def _count(self, faults: Iterable[Fault]) -> None:
        """Note faults of environments that were made again in their process. Raises as the limit does."""
        for fault in faults:
            self._seeds[fault.env_index] = fault.fresh_seed
        for fault in faults:
            try:
                self._limit(fault)
            except BrokenEnvironmentError as error:
                error.add_note(f"In its process:\n{fault.traceback}")
                raise

    def _start_another(self, number: int, lost: LostProcessError) -> None:
        """Start another process in the place of one that is lost, with fresh seeds, until its environments are reset.
        Raises as the limit does."""
        while True:
            fault = self._fault(number, lost)
            self._lost_in_a_row[number] += 1
            if self._lost_in_a_row[number] >= MOST_IN_A_ROW:
                raise BrokenEnvironmentError(
                    f"{fault.text()}; it is not made again: {MOST_IN_A_ROW} times in a row it broke without a good step"
                ) from lost
            self._limit(fault)
            part = self._part(number)
            for index in part:
                seed = self._seeds[index]
                self._seeds[index] = None if seed is None else replacement_seed(seed)
            self._shared.stepping[part.start] = part.start
            peer = self._peers[number] = Peer(self._starts[number], self._descriptor)
            _build(peer)
            seeds = self._seeds[self._slices[number]]
            peer.tell(RESET, msgspec.json.encode(None if None in seeds else seeds))
            try:
                faults = peer.wait(self._patience(number))
            except LostProcessError as again:
                lost, self._stepping = again, False
                continue
            self._count(faults)
            shared, those = self._shared, self._slices[number]
            shared.reward[those], shared.episode_info[those] = 0.0, np.nan
            shared.terminated[those] = shared.truncated[those] = False
            return

    def _fault(self, number: int, lost: LostProcessError) -> Fault:
        """Of the environment that the process was busy with."""
        part = self._part(number)
        index = int(self._shared.stepping[part.start])
        index = index if index in part else part.start
        seed = self._seeds[index]
        shared = f", with environments {part.start} to {part.stop - 1} in its process" if len(part) > 1 else ""
        return Fault(
            env_index=index,
            env=self._name,
            seed=seed,
            where=f"in a {'step' if self._stepping else 'reset'}{shared}",
            action=shown_action(self._shared.actions[index]) if self._stepping else "",
            problem=str(lost),
            fresh_seed=None if seed is None else replacement_seed(seed),
        )

    def _part(self, number: int) -> range:
        return range(self.num_envs)[self._slices[number]]


def _build(peer: Peer) -> None:
    """Wait until its environments are built. Raises EnvironmentProcessError."""
    try:
        peer.wait()
    except LostProcessError as lost:
        raise EnvironmentProcessError(f"{peer.environments} could not be built: {lost}") from lost


def _replaced(num_envs: int, indices: list[int]) -> dict[str, Any]:
    those = np.zeros(num_envs, np.bool_)
    those[indices] = True
    return {REPLACED: those, f"_{REPLACED}": those.copy()}


def _longer_than(limit_s: float | None) -> Hangs:
    return lambda waited_s: limit_s is not None and waited_s >= limit_s


def _anonymous_memory(size: int) -> int:
    """A file descriptor of memory that is freed with its last user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("remuda-environments")
    else:
        with tempfile.TemporaryFile(dir=Path(tempfile.gettempdir())) as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor
