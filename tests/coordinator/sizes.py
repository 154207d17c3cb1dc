"""How much an object holds, as a number that does not depend on the machine."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType, ModuleType

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
