"""Images, shared by several stacks and stored once: names and checks of such columns, and the learner's pool.

Neighbouring rows of Atari share all but one of their frames. So a chunk may hold, in place of a column `obs` of stacks,
the distinct frames as the one column `frames` [frames, …] and the frame indices of each stack as `frames:obs` int32
[rows, depth] (or [rows, …] of any shape): obs = frames[frames:obs].
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.generic]
Slots = npt.NDArray[np.int32]

FRAMES = "frames"
_INDEX_PREFIX = "frames:"


def index_name(name: str) -> str:
    """Return the column name of the indices of the stacks `name`."""
    return _INDEX_PREFIX + name


def stacks_name(column: str) -> str | None:
    """Return the name of the stacks for a column of indices; None for any column without indices."""
    return column.removeprefix(_INDEX_PREFIX) if column.startswith(_INDEX_PREFIX) else None


def check_columns(columns: Mapping[str, Column]) -> int:
    """Return the number of rows, which all columns but the frames have.

    Raises ValueError for different numbers of rows, for indices outside the frames, or for frames without indices and
    the reverse.
    """
    rows: set[int] = {len(column) if column.ndim else -1 for name, column in columns.items() if name != FRAMES}
    if len(rows) != 1 or -1 in rows:
        shapes = {name: column.shape for name, column in columns.items()}
        raise ValueError(f"all columns must have the same number of rows, not {shapes}")
    stacks = {name: of for name in columns if (of := stacks_name(name)) is not None}
    if (FRAMES in columns) != bool(stacks):
        raise ValueError(f"column {FRAMES!r} and columns {_INDEX_PREFIX!r}… go together, not {sorted(columns)}")
    for name, of in stacks.items():
        if not of or of in columns:
            raise ValueError(f"column {name!r} holds the stacks of {of!r}, which must be a name that is not taken")
        _check_index(name, columns[name], columns[FRAMES])
    return rows.pop()


def _check_index(name: str, index: Column, frames: Column) -> None:
    if index.dtype != np.int32 or not frames.ndim:
        raise ValueError(f"column {name!r} must be int32 and lead to frames, not {index.dtype} to {frames.shape}")
    if index.size and not 0 <= int(index.min()) <= int(index.max()) < len(frames):
        raise ValueError(f"column {name!r} leads outside the {len(frames)} frames there are")


class StackLayout:
    """All stacks of a row side by side in one array: gathering the frames in one call saves a third of the time."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        """`columns` are a chunk's, whose indices may have any shape per row."""
        self._shapes = {of: columns[name].shape[1:] for name in columns if (of := stacks_name(name)) is not None}
        self.depth = sum(math.prod(shape) for shape in self._shapes.values())
        """Frames per row, all stacks together."""

    def join(self, columns: Mapping[str, Column]) -> Slots:
        """Return the indices of all stacks, int32 [rows, depth]."""
        indices = [np.asarray(columns[index_name(of)], np.int32) for of in self._shapes]
        flat = [index.reshape(len(index), math.prod(index.shape[1:])) for index in indices]
        return np.concatenate(flat, axis=1)

    def split(self, frames: Column) -> dict[str, Column]:
        """Return the stacks, by name, as views of their `frames` [rows, depth, …]."""
        stacks: dict[str, Column] = {}
        first = 0
        for of, shape in self._shapes.items():
            end = first + math.prod(shape)
            stacks[of] = frames[:, first:end].reshape(len(frames), *shape, *frames.shape[2:], copy=False)
            first = end
        return stacks


class FramePool:
    """The frames of the chunks whose rows are still needed, in one growing array.

    The number of frames of a row depends on the episodes, so no size is known beforehand. The next frame takes any free
    slot.
    """

    def __init__(self, like: Column) -> None:
        """`like` [frames, …] has the shape and dtype of a frame."""
        self._frames: Column = np.empty((0, *like.shape[1:]), like.dtype)
        self._free: Slots = np.empty(0, np.int32)
        self._chunks: deque[tuple[int, Slots]] = deque()  # one above the last row, and where its frames are

    @property
    def nbytes(self) -> int:
        """Present memory of the frames, in bytes."""
        return self._frames.nbytes

    def add(self, frames: Column, *, end_row: int) -> Slots:
        """Keep a chunk's frames until `release(end_row)`; return the slot of each."""
        if len(frames) > len(self._free):
            self._grow(len(frames) - len(self._free))
        left = len(self._free) - len(frames)
        self._free, slots = self._free[:left].copy(), self._free[left:]
        self._frames[slots] = frames
        self._chunks.append((end_row, slots))
        return slots

    def release(self, below_row: int) -> None:
        """Forget the frames of every chunk whose rows are all below `below_row`."""
        released: list[Slots] = []
        while self._chunks and self._chunks[0][0] <= below_row:
            released.append(self._chunks.popleft()[1])
        if released:
            self._free = np.concatenate([self._free, *released])

    def gather(self, slots: Slots) -> Column:
        """Return the frames at `slots` […], which are all in range, as […, frame]."""
        return self._frames.take(slots, axis=0, mode="clip")  # "raise" would look at each slot first

    def _grow(self, frames: int) -> None:
        """Make room for this number of further frames, with a reserve to keep growing rare."""
        size = len(self._frames)
        grown = size + max(frames, size // 16)
        # Reallocation moves no byte where the system can remap pages. No view of the old memory was ever given out.
        self._frames.resize((grown, *self._frames.shape[1:]), refcheck=False)
        self._free = np.concatenate([self._free, np.arange(size, grown, dtype=np.int32)])
