"""Compares an exported file with the policy that it is made of."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from remuda.policy.base import ValuingActor
from remuda.policy.files.model_artifact import Parity
from remuda.policy.files.named_inputs import LEGAL, STATE, Floats, as_floats
from remuda.policy.networks.portable import Portable
from remuda.policy.spaces import ObservationSpec


@dataclass(frozen=True)
class Recorded:
    """Observations one after another."""

    observations: np.ndarray
    """[n, …], as policies take them."""
    begins: NDArray[np.bool_]
    """[n]: an episode begins with this observation, or what came before it is not known."""
    legal: NDArray[np.bool_] | None
    """[n, actions]: which actions were legal; None where environments do not say."""
    source: str
    """Where they are from, for people."""

    def __len__(self) -> int:
        return len(self.observations)


Run = Callable[[Mapping[str, Floats]], list[np.ndarray]]
"""Answers inputs by name: actions, outputs, values, and states where the policy carries any."""
Answers = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Actions, outputs and values of observations."""

_AT_ONCE = 256
"""Observations, of a policy that carries no state."""


class Comparison:
    """Asks both about the same observations."""

    def __init__(self, policy: ValuingActor, portable: Portable, observation: ObservationSpec) -> None:
        """`policy` acts and values as the file should; the outputs are those of `portable`."""
        self._policy, self._portable, self._observation = policy, portable, observation

    def parity(self, run: Run, recorded: Recorded) -> Parity:
        """How far what `run` answers is from the policy."""
        both = list(self._answers(run, recorded))
        own, other = (tuple(map(np.concatenate, zip(*side, strict=True))) for side in zip(*both, strict=True))
        actions = np.isclose(other[0], own[0], rtol=1e-5, atol=1e-5).reshape(len(recorded), -1)
        differences = [_largest_difference(one, two) for one, two in zip(own, other, strict=True)]
        return Parity(
            observations=len(recorded),
            source=recorded.source,
            equal_actions=float(actions.all(1).mean()),
            largest_action_difference=differences[0],
            largest_output_difference=differences[1],
            largest_value_difference=differences[2],
            largest_number=float(max(np.abs(each).max(initial=0.0) for each in own[1:])),
        )

    def _answers(self, run: Run, recorded: Recorded) -> Iterator[tuple[Answers, Answers]]:
        """The policy's answers and those of the file, for some observations after the others."""
        size = self._portable.state_size
        # What each of the four carries through the episode.
        acting, valuing, inner, carried = (np.zeros((1, size), np.float32) for _ in range(4))
        for first in range(0, len(recorded), 1 if size else _AT_ONCE):
            rows = slice(first, first + (1 if size else _AT_ONCE))
            if size and recorded.begins[first]:
                acting, valuing, inner, carried = (np.zeros((1, size), np.float32) for _ in range(4))
            seen = recorded.observations[rows]
            legal = None if recorded.legal is None else recorded.legal[rows]
            own = self._own(seen, legal, acting, valuing)
            outputs, inner = self._outputs(seen, inner)
            given = {**as_floats(self._observation, seen), **({STATE: carried} if size else {})}
            answer = run(given if legal is None else {**given, LEGAL: legal.astype(np.float32)})
            carried = answer[-1]
            yield (own[0], outputs, own[1]), (answer[0], answer[1], answer[2])

    def _own(
        self, seen: np.ndarray, legal: np.ndarray | None, acting: np.ndarray, valuing: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        states = (acting, valuing) if self._portable.state_size else (None, None)
        unused = np.random.default_rng(0)
        actions = self._policy.act(seen, {}, unused, deterministic=True, legal=legal, state=states[0])
        return actions, self._policy.value(seen, state=states[1])

    @torch.no_grad()
    def _outputs(self, seen: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        observations = torch.from_numpy(np.ascontiguousarray(seen, self._observation.dtype))
        if not self._portable.state_size:
            return self._portable(observations).numpy(), state
        outputs, after = self._portable(observations, torch.from_numpy(state))
        return outputs.numpy(), after.numpy()


def _largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))
