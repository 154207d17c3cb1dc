"""Acting with a recurrent network: encoder and core, followed by the policy of the head."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.policy.acting.network import Network
from remuda.policy.base import Arrays, Policy
from remuda.policy.networks.layouts import CORE, HEAD, RecurrentLayout
from remuda.policy.saved_state import StateMismatchError
from remuda.policy.spaces import Numbers, ObservationSpec

Floats = NDArray[np.float32]


class RecurrentPolicy(Policy):
    """Acts as `head` does, on the outputs of a RecurrentNetwork's core."""

    def __init__(
        self,
        layout: RecurrentLayout,
        observation: ObservationSpec,
        head: Policy,
        network: Network,
    ) -> None:
        """`head` acts on observations like `layout.remembered`. `network` has the output `encoded`, the core's
        inputs."""
        self._layout, self._observation, self._head = layout, observation, head
        self.state_size = layout.state_size
        self.uses_legal_actions = head.uses_legal_actions
        self.keeps_float64 = layout.normalizes
        self._numbers: Numbers = observation.numbers(normalised=layout.normalizes)
        self._network = network
        self._core: Core | None = None

    def load_state(self, state: Arrays) -> None:
        """Acts with these weights from now on. Raises StateMismatchError and keeps the old weights."""
        try:
            core = Core(state, self._layout)
        except KeyError as error:
            raise StateMismatchError([f"policy: missing {error.args[0]}"]) from error
        self._network.load_state(state)
        self._head.load_state({name.removeprefix(HEAD): state[name] for name in state if name.startswith(HEAD)})
        self._core = core

    def take_place(self, first: int, of: int) -> None:
        self._head.take_place(first, of)

    def recorded(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return self._head.recorded()

    def act(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        deterministic: bool,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> np.ndarray:
        remembered = self.remembered(observations, state)
        return self._head.act(remembered, exploration, rng, deterministic=deterministic, legal=legal)

    def act_recording(
        self,
        observations: np.ndarray,
        exploration: Mapping[str, float],
        rng: np.random.Generator,
        *,
        legal: np.ndarray | None = None,
        state: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Arrays]:
        return self._head.act_recording(self.remembered(observations, state), exploration, rng, legal=legal)

    def value(self, observations: np.ndarray, *, state: np.ndarray | None = None) -> np.ndarray:
        return self._head.value(self.remembered(observations, state))

    def remembered(self, observations: np.ndarray, state: np.ndarray | None) -> Floats:
        """Returns the core's outputs float32 [n, units] for observations [n, …], and updates `state` [n, state_size] in
        place."""
        if self._core is None:
            raise RuntimeError("the policy has no weights yet: call load_state first")
        if state is None:
            raise ValueError("a recurrent policy acts with the state of each environment: give `state`")
        encoded = self._network("encoded", self._observation.encode(observations, self._numbers))
        return self._core.step(encoded, state)


class Core:
    """The recurrent layer of a RecurrentNetwork, step by step, with the gates in the order of torch's cells."""

    def __init__(self, state: Arrays, layout: RecurrentLayout) -> None:
        self._units, self._lstm = layout.units, layout.core == "lstm"
        weights = [np.ascontiguousarray(state[f"{CORE}weight_{part}"].T) for part in ("ih", "hh")]
        self._input, self._recurrent = weights
        self._input_bias, self._recurrent_bias = state[f"{CORE}bias_ih"], state[f"{CORE}bias_hh"]

    def step(self, encoded: np.ndarray, state: np.ndarray) -> Floats:
        """The outputs for encoded observations [n, encoded]: float32 [n, units]. Overwrites `state` [n, state_size]."""
        return self._lstm_step(encoded, state) if self._lstm else self._gru_step(encoded, state)

    def _lstm_step(self, encoded: np.ndarray, state: np.ndarray) -> Floats:
        """Input, forget, new and output gate (Hochreiter and Schmidhuber 1997; Gers et al. 2000)."""
        units = self._units
        output, cells = state[:, :units], state[:, units:]
        gates: Floats = encoded @ self._input
        gates += output @ self._recurrent
        gates += self._input_bias + self._recurrent_bias
        new = np.tanh(gates[:, 2 * units : 3 * units])
        cells *= _sigmoid(gates[:, units : 2 * units])
        cells += _sigmoid(gates[:, :units]) * new
        np.multiply(_sigmoid(gates[:, 3 * units :]), np.tanh(cells), out=output)
        return output.copy()

    def _gru_step(self, encoded: np.ndarray, state: np.ndarray) -> Floats:
        """Reset, update and new gate (Cho et al. 2014)."""
        units = self._units
        seen: Floats = encoded @ self._input + self._input_bias
        before: Floats = state @ self._recurrent + self._recurrent_bias
        gates = _sigmoid(seen[:, : 2 * units] + before[:, : 2 * units])
        reset, update = gates[:, :units], gates[:, units:]
        new = np.tanh(seen[:, 2 * units :] + reset * before[:, 2 * units :])
        state += (1.0 - update) * (new - state)
        return state.copy()


def _sigmoid(numbers: Floats) -> Floats:
    """1 / (1 + exp(-x)), written without overflow."""
    halves: Floats = np.tanh(numbers * np.float32(0.5))
    halves *= np.float32(0.5)
    halves += np.float32(0.5)
    return halves
