"""How a tree is searched: the settings, and the numbers that depend on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Nodes = npt.NDArray[np.int32]
Actions = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GumbelSettings:
    """Of the search of Gumbel MuZero. Raises ValueError for what makes no search."""

    considered_actions: int = 16
    """How many actions of a root are tried at most; with few simulations as many as there are simulations."""
    c_visit: float = 50.0
    """The larger, the sooner values decide against the network's policy, however few simulations there were."""
    c_scale: float = 1.0
    """How much values, scaled to 0 … 1, count against the network's policy. The paper has 1.0 for board games and 0.1
    for Atari."""

    def __post_init__(self) -> None:
        if self.considered_actions < 1:
            raise ValueError(f"at least one action must be considered, not {self.considered_actions}")
        if not (0 <= self.c_visit < np.inf and 0 < self.c_scale < np.inf):
            raise ValueError("c_visit is not negative, and c_scale is positive")


@dataclass(frozen=True)
class SearchSettings:
    """What a search is told once. Raises ValueError for what makes no search."""

    simulations: int
    """Nodes that are added to each tree, and evaluations of the network after the first."""
    discount: float = 0.997
    """Of a reward one step later, 0 … 1."""
    players: Literal[1, 2] = 1
    """With 2 they take turns, and what is good for one is bad for the other: values and rewards of a node are those of
    the player who acts there."""
    pb_c_base: float = 19652.0
    """How soon exploration grows with the visits of a node; the larger, the later."""
    pb_c_init: float = 1.25
    """Weight of the priors against the values."""
    value_delta_min: float = 0.01
    """Values of a tree that differ by less than this in all are not stretched to 0 … 1: such differences are noise."""
    gumbel: GumbelSettings | None = None
    """Search by the rule of Gumbel MuZero, which needs few simulations (2 to 16); pb_c_base and pb_c_init are not used
    then. Without, by that of MuZero."""

    def __post_init__(self) -> None:
        if self.simulations < 1:
            raise ValueError(f"a search needs at least one simulation, not {self.simulations}")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"a discount lies between 0 and 1, not at {self.discount}")
        if not (self.pb_c_base > 0 and self.pb_c_init >= 0 and self.value_delta_min > 0):
            raise ValueError("pb_c_base and value_delta_min are positive, and pb_c_init is not negative")

    @property
    def sign(self) -> float:
        """What the value of the next state is multiplied by, to be that of the player who acts: 1.0 or -1.0."""
        return 1.0 if self.players == 1 else -1.0

    def exploration(self) -> Doubles:
        """Return the factor of the priors of a node of whose actions N simulations were made, for N = 0 … simulations.

        (log((N + pb_c_base + 1) / pb_c_base) + pb_c_init) · sqrt(N), of appendix B of Schrittwieser et al. 2020.
        """
        made = np.arange(self.simulations + 1, dtype=np.float64)
        return (np.log((made + self.pb_c_base + 1) / self.pb_c_base) + self.pb_c_init) * np.sqrt(made)

    def scale(self, low: Doubles, high: Doubles) -> Doubles:
        """Return by what values above `low` are multiplied, to lie between 0 and 1."""
        return 1.0 / np.maximum(high - low, self.value_delta_min)
