"""Checks that the pickle in a checkpoint is as plain as Remuda's own, without executing it.

`torch.load(weights_only=True)` calls no harmful function, but functions that take as much memory as the file demands
(`bytearray` of a number), and hashes keys that a few bytes describe and that unfold beyond any memory (a tuple of
tuples, each with its predecessor twice). This module follows the file's operations with placeholders for values.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Iterator

MOST_UNFOLDED = 1_000_000
"""Largest number of values, counted once per reference, in addition to the number of operations."""
MOST_DEEP = 200
"""Lists in lists."""

_STORAGE = re.compile(r"torch(\.storage)? [A-Z][A-Za-z0-9]*Storage")
_DTYPE = re.compile(r"torch (float|bfloat|int|uint|complex|bool)[a-z0-9_]*")
_FUNCTIONS = frozenset(
    {
        "collections OrderedDict",
        "collections Counter",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        "torch Size",
        "torch device",
        "torch.serialization _get_layout",
        "_codecs encode",
        "builtins set",
        "builtins complex",
        "__builtin__ set",
        "__builtin__ complex",
    }
)
"""Functions that `torch.save` names for tensors, numbers, text, bytes, sets, lists and dicts."""


class _Value:
    """Placeholder for a value: holds the values inside it."""

    __slots__ = ("depth", "inside", "unfolded")

    def __init__(self, inside: list[_Value]) -> None:
        self.inside = inside
        self.unfolded = 0
        self.depth = 0


_PLAIN = _Value([])
"""Placeholder for all numbers and text."""
_PLAIN.unfolded = 1


class _Machine:
    """Stack, marks and memo of an unpickler."""

    def __init__(self) -> None:
        self.stack: list[_Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, _Value] = {}
        self.made: list[_Value] = []

    def push(self, inside: list[_Value]) -> None:
        value = _Value(inside)
        self.made.append(value)
        self.stack.append(value)

    def take(self, count: int) -> list[_Value]:
        """Pop values from the stack. Raises ValueError if it has too few."""
        if count > len(self.stack) - (self.marks[-1] if self.marks else 0):
            raise ValueError("its pickle pops more values than the stack has")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def take_to_mark(self) -> list[_Value]:
        if not self.marks:
            raise ValueError("its pickle has no mark where it needs one")
        begin = self.marks.pop()
        taken = self.stack[begin:]
        del self.stack[begin:]
        return taken

    def put_into(self, inside: list[_Value]) -> None:
        """The value on top, a list, a dict or an object, gets more inside."""
        [into] = self.take(1)
        if into is _PLAIN:
            raise ValueError("its pickle puts values into a number")
        into.inside += inside
        self.stack.append(into)


def _do_nothing(machine: _Machine, argument: object) -> None:
    pass


def _push_plain(machine: _Machine, argument: object) -> None:
    machine.stack.append(_PLAIN)


def _push_empty(machine: _Machine, argument: object) -> None:
    machine.push([])


def _named(machine: _Machine, argument: object) -> None:
    name = str(argument)
    if name not in _FUNCTIONS and not _STORAGE.fullmatch(name) and not _DTYPE.fullmatch(name):
        raise ValueError(f"its pickle names {name[:80]!r}, which no checkpoint needs")
    machine.stack.append(_PLAIN)


def _mark(machine: _Machine, argument: object) -> None:
    machine.marks.append(len(machine.stack))


def _remember(machine: _Machine, argument: object) -> None:
    [value] = machine.take(1)
    machine.stack.append(value)
    machine.memo[int(str(argument))] = value


def _recall(machine: _Machine, argument: object) -> None:
    value = machine.memo.get(int(str(argument)))
    if value is None:
        raise ValueError("its pickle reads a memo entry that was not set")
    machine.stack.append(value)


def _packing(count: int) -> Callable[[_Machine, object], None]:
    return lambda machine, argument: machine.push(machine.take(count))


def _filling(count: int | None) -> Callable[[_Machine, object], None]:
    return lambda machine, argument: machine.put_into(machine.take_to_mark() if count is None else machine.take(count))


_OPERATIONS: dict[str, Callable[[_Machine, object], None]] = {
    **dict.fromkeys(("PROTO", "STOP"), _do_nothing),
    **dict.fromkeys(("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _push_plain),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"), _push_plain),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "EMPTY_TUPLE"), _push_empty),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _recall),
    **dict.fromkeys(("APPENDS", "SETITEMS"), _filling(None)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _packing(2)),
    "GLOBAL": _named,
    "MARK": _mark,
    "TUPLE": lambda machine, argument: machine.push(machine.take_to_mark()),
    "TUPLE1": _packing(1),
    "TUPLE2": _packing(2),
    "TUPLE3": _packing(3),
    "BINPERSID": _packing(1),
    "APPEND": _filling(1),
    "SETITEM": _filling(2),
    "BUILD": _filling(1),
}
"""Effect of each operation, by its name in pickletools. torch's reader knows the same operations."""


def require_plain_pickle(content: bytes) -> None:
    """Raise ValueError if the pickle names a function that no checkpoint needs, or unfolds far beyond its size."""
    machine, operations = _Machine(), 0
    for operation, argument, _ in pickletools.genops(content):
        follow = _OPERATIONS.get(operation.name)
        if follow is None:
            raise ValueError(f"its pickle has the operation {operation.name}, which no checkpoint needs")
        follow(machine, argument)
        operations += 1
    most = MOST_UNFOLDED + operations
    for value in machine.made:
        if not value.unfolded:
            _unfold(value, most)


def _unfold(root: _Value, most: int) -> None:
    """Compute unfolded size and depth of a value, innermost values first."""
    path: list[tuple[_Value, Iterator[_Value]]] = [(root, iter(root.inside))]
    open_now = {id(root)}
    while path:
        value, rest = path[-1]
        following = next((each for each in rest if not each.unfolded), None)
        if following is not None:
            if id(following) in open_now:
                raise ValueError("its pickle contains itself")
            open_now.add(id(following))
            path.append((following, iter(following.inside)))
            continue
        path.pop()
        open_now.discard(id(value))
        value.unfolded = 1 + sum(each.unfolded for each in value.inside)
        value.depth = 1 + max((each.depth for each in value.inside), default=0)
        if value.unfolded > most:
            raise ValueError(f"its pickle unfolds to more than {most} values")
        if value.depth > MOST_DEEP:
            raise ValueError(f"its pickle is nested deeper than {MOST_DEEP} levels")
