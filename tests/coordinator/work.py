"""How much work a call is, as a number that does not depend on the machine: the steps of its Python code."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def operations(call: Callable[[], object]) -> int:
    """How many operations of the interpreter it takes; what C does in one of them counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> TraceFunction:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


_SHARED = (type, ModuleType, FunctionType, CodeType, MethodType)


def size_of(thing: object, skip: Callable[[object], bool] = lambda each: False) -> int:
    """Objects that it refers to, directly or through others; code and what `skip` names are not followed."""
    seen: set[int] = set()
    waiting: list[object] = [thing]
    kept: list[object] = []  # so that no id is used twice
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _SHARED) or skip(each):
            continue
        seen.add(id(each))
        kept.append(each)
        waiting += gc.get_referents(each)
    return len(kept)
