"""The compiled gather, of _gather.c. Only gathering.py uses it."""

import numpy as np
import numpy.typing as npt

from remuda.buffer.gathering import Column

def gather(columns: tuple[Column, ...], out: tuple[Column, ...], slots: npt.NDArray[np.int64], /) -> None:
    """All arrays are contiguous and, as other threads go on meanwhile, not to be changed by any of them.

    Raises IndexError for a slot outside of a column, ValueError where `out` has not as many bytes as the rows, and
    TypeError for slots of another dtype; nothing has changed then."""
