"""The compiled sum tree, of _sum_tree.c. Only sum_tree.py uses it."""

import numpy as np
import numpy.typing as npt

class SumTree:
    """Takes contiguous arrays, whatever their shape, and gives back the bytes of new ones.

    Raises TypeError for arrays of other dtypes, IndexError for slots outside of the tree, and ValueError as
    remuda.buffer.sum_tree says; nothing has changed then.
    """

    def __new__(cls, capacity: int, /) -> SumTree: ...
    @property
    def total(self) -> float: ...
    def set(self, slots: npt.NDArray[np.int64], values: npt.NDArray[np.float64], /) -> None:
        """As many values as slots, or a single one."""
    def get(self, slots: npt.NDArray[np.int64], /) -> bytearray:
        """Return their values, float64."""
    def find(self, points: npt.NDArray[np.float64], /) -> tuple[bytearray, bytearray]:
        """Return the slots, int64, and their values, float64."""
    def draw(self, shares: npt.NDArray[np.float64], /) -> tuple[bytearray, bytearray]:
        """Return the slots, int64, and their shares of the total, float64."""
