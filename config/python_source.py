"""Reading a run folder's `exp_config = {...}`: one literal, looked at and never executed."""

from __future__ import annotations

import ast
import re
import warnings
from typing import cast

from pydantic import JsonValue

from remuda.config.document import MAX_DEPTH, Document, Loc, UnreadableError, dotted, require_mapping

VARIABLE = "exp_config"

_COMMENT_OR_STRING = re.compile(
    r"""\#[^\n]* | (?P<prefix>[A-Za-z]{0,2}) (?: \'{3}(?:[^\\]|\\.)*?\'{3} | "{3}(?:[^\\]|\\.)*?"{3}
    | \'(?:[^\'\\\n]|\\.)*\' | "(?:[^"\\\n]|\\.)*" )""",
    re.DOTALL | re.VERBOSE,
)
"""One as Python reads it: what stands in it begins no other."""


def read_python(text: str) -> Document:
    """Parse a whole file. Raises UnreadableError for anything but one assignment of a literal."""
    _refuse_f_strings(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a string is the author's business
            module = ast.parse(text)
    except SyntaxError as error:
        raise UnreadableError(f"not valid Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError):
        raise UnreadableError("not a config: nested too deep, or not text") from None
    lines: dict[Loc, int] = {}
    return Document(require_mapping(_value(_assigned(module), (), lines)), lines)


def _refuse_f_strings(text: str) -> None:
    """No plain values, and of Python 3.11's parser one of them can take many seconds."""
    for found in _COMMENT_OR_STRING.finditer(text):
        if "f" in (found["prefix"] or "").lower():
            raise UnreadableError("an f-string is not a plain value", text.count("\n", 0, found.start()) + 1)


def _assigned(module: ast.Module) -> ast.expr:
    """What is assigned to the one variable, which must be all that the file does."""
    if not module.body:
        require_mapping(None)
    for number, statement in enumerate(module.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if name == VARIABLE and number == 0:
                continue
            case _:
                text = f"only one `{VARIABLE} = {{…}}` is accepted; nothing in a config file is executed"
                raise UnreadableError(text, statement.lineno)
    return cast(ast.Assign, module.body[0]).value


def _value(node: ast.expr, loc: Loc, lines: dict[Loc, int]) -> JsonValue:
    if len(loc) > MAX_DEPTH:
        raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels", node.lineno)
    if isinstance(node, ast.Dict):
        return _mapping(node, loc, lines)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, (*loc, index), lines) for index, item in enumerate(node.elts)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, loc)
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | int | float)):
        return node.value
    raise UnreadableError(f"{dotted(loc) or VARIABLE}: not a plain value", node.lineno)


def _mapping(node: ast.Dict, loc: Loc, lines: dict[Loc, int]) -> dict[str, JsonValue]:
    mapping: dict[str, JsonValue] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise UnreadableError("a key must be a plain string", (key or value).lineno)
        here = (*loc, key.value)
        if key.value in mapping:
            raise UnreadableError(f"{dotted(here)}: given twice (first on line {lines[here]})", key.lineno)
        lines[here] = key.lineno
        mapping[key.value] = _value(value, here, lines)
    return mapping


def _number(node: ast.expr, loc: Loc) -> int | float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    raise UnreadableError(f"{dotted(loc) or VARIABLE}: not a plain value", node.lineno)
