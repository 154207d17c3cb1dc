"""What a recurrent network is made of: an encoder, a recurrent core, and a head. The layout alone, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from remuda.policy.spaces import ObservationSpec

CoreKind = Literal["lstm", "gru"]
"""Long short-term memory (Hochreiter and Schmidhuber 1997) or gated recurrent unit (Cho et al. 2014)."""
GATES = {"lstm": 4, "gru": 3}
"""How many rows of its weights each unit of a core has."""
ENCODER, CORE, HEAD = "encoder.", "core.", "head."
"""What the names of the three parts begin with in a network's state."""


@dataclass(frozen=True)
class RecurrentLayout:
    """How a recurrent network reads observations: an encoder or convolutions (of images), hidden layers, the core."""

    numbers: int
    """Of an observation, where they are normalised."""
    hidden: tuple[int, ...]
    """Units of the layers between the observation and the core, one at least, each followed by the activation."""
    activation: Literal["tanh", "relu"]
    core: CoreKind
    units: int
    """Of the core: numbers that the head reads."""
    normalizes: bool = False
    """Observations, which are no images then, are brought to running mean 0 and standard deviation 1 first."""

    @property
    def state_size(self) -> int:
        """Numbers that are carried from one observation to the next. An LSTM's are its outputs, then its cells."""
        return 2 * self.units if self.core == "lstm" else self.units

    @property
    def encoded(self) -> int:
        """Numbers that the core reads."""
        return self.hidden[-1]

    @property
    def remembered(self) -> ObservationSpec:
        """What the core gives, as the head reads it: like observations of a Box."""
        return ObservationSpec((self.units,), "float32")


def begins_of(valid: np.ndarray) -> np.ndarray:
    """Which observations [B, T + 1] are the first of an episode, given which steps [B, T] are no resets. What came
    before the first observation is in its state."""
    begins = np.zeros((valid.shape[0], valid.shape[1] + 1), np.bool_)
    begins[:, 1:] = ~valid
    return begins
