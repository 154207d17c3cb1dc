"""The compiled gather, of _gather.c. Only ring.py uses it."""

import numpy as np
import numpy.typing as npt

from remuda.buffer.ring import Column

def gather_rows(
    row_of_slot: npt.NDArray[np.int64],
    columns: tuple[Column, ...],
    out: tuple[Column, ...],
    rows: npt.NDArray[np.int64],
    /,
) -> bool:
    """All arrays are contiguous and, as other threads go on meanwhile, not to be changed by any of them.

    Raises ValueError for columns that are not alike in length, where `out` has not as many bytes as the rows, or where
    there is no slot at all, and TypeError for rows of another dtype; nothing has changed then."""
