"""Recent steps of a vector: arrays over time and environment, allocated once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from remuda.environments.spaces import Array, Space, column_layout, nearest_to_zeros

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Trace:
    """Slots of time, each one step of the vector; the first `kept` slots are the end of the stretch before.

    Slot t has the action on observations[t], its results, and the end of an episode (`done`; `terminated` without a
    continuation); observations[t + 1] is the next observation. After the end of a whole game (`over`), the
    environment's next slot is its reset, not a real step. `done` without `over` is a lost life. `pending` marks real
    steps with rows to come. state[t] is the policy's state before observations[t]: all 0 at the first observation of a
    game. legal[t] has the legal actions of observations[t]; it is empty without masks.
    """

    def __init__(
        self,
        observation: Space,
        action: Space,
        *,
        num_envs: int,
        kept: int,
        recorded: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
        measured: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
        keeps_float64: bool = False,
        state_size: int = 0,
    ) -> None:
        """`recorded` and `measured` come from Policy: shape and dtype of the values kept of each action, by name, for
        rows and for metrics alone; `keeps_float64` and `state_size` come from Actor."""
        self.kept = kept
        self.end = kept  # the next free slot
        self.num_envs = num_envs
        self.recorded: dict[str, Array] = {}
        """[time, env, …]: the policy's recorded values of its actions, by name; 0 without an action."""
        self.noted: dict[str, Array] = {}
        """`recorded`, and the values for metrics alone."""
        self._recorded_names = tuple(recorded or {})
        self._noted_layouts = {**(measured or {}), **(recorded or {})}
        seen = column_layout(observation, what="observation", keeps_float64=keeps_float64)
        self._layouts = (seen, column_layout(action, what="action", keeps_float64=True))
        _, self._action_dtype = column_layout(action, what="action")
        self._no_action = nearest_to_zeros(action)
        """For slots in which the policy was not asked: sequences hold these slots, and algorithms look actions up."""
        self._state_size = state_size
        self.away: Bools = np.zeros(num_envs, np.bool_)
        """[env]: nobody is there in the next slot, for instance before a reset: the state begins again after it. Only
        for policies with a state."""
        self.keeps_legal = False
        """True after `keep_legal`."""
        self._legal_values = 0  # of all components of an action
        self._was_reset = False
        self._allocate(kept)

    def _allocate(self, slots: int) -> None:
        (seen_shape, seen_dtype), (acted_shape, acted_dtype) = self._layouts
        size = (slots, self.num_envs)
        self.slots = slots
        # zeros, since pages that are never written then cost no memory: most slots are there for the worst case.
        self.observations: Array = np.zeros((slots + 1, self.num_envs, *seen_shape), seen_dtype)
        self.state: Array = np.zeros((slots + 1, self.num_envs, self._state_size), np.float32)
        self.legal: Bools = np.ones((slots + 1, self.num_envs, self._legal_values), np.bool_)
        self.actions: Array = np.zeros((*size, *acted_shape), acted_dtype)
        self.reward: Floats = np.zeros(size)
        self.terminated: Bools = np.zeros(size, np.bool_)
        self.done: Bools = np.zeros(size, np.bool_)
        self.over: Bools = np.zeros(size, np.bool_)
        self.pending: Bools = np.zeros(size, np.bool_)
        layouts = self._noted_layouts
        self.noted = {name: np.zeros((*size, *shape), dtype) for name, (shape, dtype) in layouts.items()}
        self.recorded = {name: self.noted[name] for name in self._recorded_names}

    def begin(self, steps: int) -> None:
        """Start a stretch of at most `steps` slots, and drop the slots of an unfinished stretch."""
        self.end = self.kept
        if self.slots >= self.kept + steps:
            return
        old = self._per_slot()
        seen, state, legal = self.observations, self.state, self.legal
        self._allocate(self.kept + steps)
        self.observations[: self.kept + 1] = seen[: self.kept + 1]
        self.state[: self.kept + 1] = state[: self.kept + 1]
        self.legal[: self.kept + 1] = legal[: self.kept + 1]
        for new, kept in zip(self._per_slot(), old, strict=True):
            new[: self.kept] = kept[: self.kept]

    def carry(self) -> Array | None:
        """Return the states [env, state_size] of the next slot, for the policy to overwrite with the states after it.
        None for policies without a state."""
        if not self._state_size:
            return None
        after: Array = self.state[self.end + 1]
        after[:] = self.state[self.end]
        return after

    def keep_legal(self, values: int) -> None:
        """Store legal actions from now on, for this number of values; before, all values were legal."""
        self.keeps_legal, self._legal_values = True, values
        self.legal = np.ones((self.slots + 1, self.num_envs, values), np.bool_)

    def note_legal(self, legal: Bools | None) -> None:
        """Store the legal actions [env, values] of the newest observations; None: all are legal."""
        self.legal[self.end] = True if legal is None else legal

    def legal_now(self) -> Bools | None:
        """Return the legal actions of the newest observations; None: all are legal."""
        if not self.keeps_legal:
            return None
        legal: Bools = self.legal[self.end]
        return legal

    def append(
        self,
        action: Array,
        observation: Array,
        reward: Array,
        terminated: Array,
        ended: Array,
        over: Array,
        life_lost: Array | None = None,
        away: Array | None = None,
    ) -> None:
        """Fill the next slot with one step of the vector: `terminated` episodes, `ended` episodes of any kind, and
        environments without a step in the slot after (`over`), each [env]. `away` are those of `over` with nobody
        there; in the others a policy plays without learning. None: all of `over`."""
        t = self.end
        self.actions[t] = action
        self.observations[t + 1] = observation
        self.reward[t] = reward
        self.over[t] = over
        if life_lost is None:
            self.terminated[t] = terminated
            self.done[t] = ended
        else:
            self.terminated[t] = terminated | life_lost
            self.done[t] = ended | life_lost
        if self._state_size:
            self.state[t + 1, self.away] = 0.0  # this slot was their reset
            self.away = (over if away is None else away).copy()
        self.end = t + 1

    def truncate(self, replaced: Bools) -> Bools:
        """End the episodes of environments [env] replaced in the next slot with the slot before, as if truncated.
        Return the replaced environments that were in an episode, not in a reset."""
        last = self.end - 1
        cut: Bools = replaced & ~self.over[last]
        self.done[last, cut] = self.over[last, cut] = True
        self.away |= replaced
        return cut

    def record(self, recorded: Mapping[str, Array]) -> None:
        """Store the policy's values for the actions [env, …] of the next slot."""
        for name, values in recorded.items():
            self.noted[name][self.end] = values

    def append_reset(self, observation: Array) -> None:
        """Begin with a reset of all environments: current episodes end with the last slot, as if truncated."""
        if not self._was_reset:  # segments begin before it, and every observation must be one of the space
            self._was_reset = True
            self.observations[: self.kept + 1] = observation
        self.done[self.kept - 1] = self.over[self.kept - 1] = True
        self.actions[self.kept] = self._no_action
        self.observations[self.kept + 1] = observation
        self.state[self.kept + 1] = 0.0
        self.away = np.zeros(self.num_envs, np.bool_)
        self.reward[self.kept] = 0.0
        self.terminated[self.kept] = self.done[self.kept] = self.over[self.kept] = False
        for values in self.noted.values():
            values[self.kept] = 0
        self.end = self.kept + 1

    @property
    def new(self) -> slice:
        """The slots of this stretch."""
        return slice(self.kept, self.end)

    @property
    def action_column(self) -> Array:
        """Return the actions [time, env, …] of all slots so far with the dtype of rows; `actions` are exact, as the
        environments got them."""
        return self.actions[: self.end].astype(self._action_dtype, copy=False)

    def real(self) -> Bools:
        """Return the new slots that are real steps, not resets: [time, env]."""
        return ~self.over[self.kept - 1 : self.end - 1]

    def shift(self) -> None:
        """Finish the stretch: move its last `kept` slots to the front."""
        first = self.end - self.kept
        self.observations[: self.kept + 1] = self.observations[first : self.end + 1]
        self.state[: self.kept + 1] = self.state[first : self.end + 1]
        self.legal[: self.kept + 1] = self.legal[first : self.end + 1]
        for slots in self._per_slot():
            slots[: self.kept] = slots[first : self.end]
        self.end = self.kept

    def _per_slot(self) -> tuple[Array, ...]:
        own = (self.actions, self.reward, self.terminated, self.done, self.over, self.pending)
        return (*own, *self.noted.values())
