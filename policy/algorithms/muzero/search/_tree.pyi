"""The compiled search trees, of _tree.c. Only tree.py uses them."""

import numpy as np
import numpy.typing as npt

class Tree:
    """Takes contiguous arrays, and gives back the bytes of new ones.

    Raises TypeError for arrays of other dtypes, and ValueError and RuntimeError as
    remuda.policy.algorithms.muzero.search.tree says; nothing has changed then.
    """

    def __new__(
        cls,
        roots: int,
        actions: int,
        simulations: int,
        discount: float,
        sign: float,
        value_delta_min: float,
        exploration: npt.NDArray[np.float64],
        gumbel: tuple[int, float, float, npt.NDArray[np.int32] | None],
        /,
    ) -> Tree:
        """`gumbel` are the most actions considered (0 for the rule of MuZero), c_visit, c_scale, and the schedule."""
    def reset(
        self,
        prior: npt.NDArray[np.float32],
        value: npt.NDArray[np.float32],
        logits: npt.NDArray[np.float32] | None,
        scores: npt.NDArray[np.float64],
        least: float,
        /,
    ) -> None:
        """Take what roots.py makes. The rule of MuZero does not look at logits and scores. `least` is 0, or below it
        where there are illegal actions: no prior is less."""
    def select(self, parents: npt.NDArray[np.int32], actions: npt.NDArray[np.int64], /) -> None:
        """Write the parents of the next nodes, and the actions there, into arrays [n]."""
    def expand(
        self,
        reward: npt.NDArray[np.float32],
        prior: npt.NDArray[np.float32],
        value: npt.NDArray[np.float32],
        logits: npt.NDArray[np.float32] | None,
        /,
    ) -> None: ...
    def visits(self) -> bytearray:
        """Return int32 numbers."""
    def q_values(self) -> bytearray:
        """Return float64 numbers."""
    def root_values(self) -> bytearray:
        """Return the mean of the root's own value and of all that came up to it, float32."""
    def lows(self) -> bytearray:
        """Return the lowest value in each tree, float64."""
    def highs(self) -> bytearray:
        """Return the highest value in each tree, float64."""
