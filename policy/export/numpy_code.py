"""Translates a policy into lines of numpy: operations of the trace become expressions."""

# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from remuda.policy.networks import numpy_functions

_END = (1 << 63) - 1
"""Slices of whole axes end here."""
_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
"""Numpy's dtypes, by the numbers of torch's dtypes in graphs."""


class NotInNumpyError(Exception):
    """The policy contains an operation without a translation to numpy."""


class NumpyCode:
    """Lines of a function in numpy, and its arrays by name, in `w`."""

    def __init__(self, traced: torch.jit.ScriptModule, arguments: Sequence[str]) -> None:
        """`arguments`: the names of the inputs. Raises NotInNumpyError."""
        frozen = torch.jit.freeze(traced, optimize_numerics=False)
        graph: Any = frozen.graph
        self.arrays: dict[str, np.ndarray] = {}
        self._made: dict[str, str] = {}
        """Names by the text of their expression: common expressions are computed once."""
        itself, *inputs = graph.inputs()
        # Texts and constants, by the names that values have in the graph.
        self._known: dict[str, Any] = {itself.debugName(): frozen}
        self._known |= {value.debugName(): name for value, name in zip(inputs, arguments, strict=True)}
        for node in graph.nodes():
            self._add(node)
        (answer,) = graph.outputs()
        self._returned: list[str] = self._known[answer.debugName()]

    def lines(self, outputs: Sequence[str]) -> list[str]:
        """Lines of the function, with these names for the results. Expressions used once are inlined."""
        lines = {names: text for text, names in self._made.items()}
        for name in list(lines):
            alone, texts = f"({name})", [*lines.values(), *self._returned]
            readers = [reader for reader, text in lines.items() if alone in text]
            if len(readers) == 1 and sum(len(re.findall(rf"\b{name}\b", text)) for text in texts) == 1:
                lines[readers[0]] = lines[readers[0]].replace(alone, f"({lines.pop(name)})")
        text = "\n".join(f"{names} = {text}" for names, text in lines.items())
        renamed = dict[str, str]()
        for made, name in zip(self._returned, outputs, strict=True):
            if made in lines and made not in renamed:
                text, renamed[made] = re.sub(rf"\b{made}\b", name, text), name
            else:
                text += f"\n{name} = {renamed.get(made, made)}"
        return [*text.splitlines(), f"return {', '.join(outputs)}"]

    @property
    def functions(self) -> list[str]:
        """Source of the called functions, and of functions called by these."""
        sources = dict(inspect.getmembers(numpy_functions, inspect.isfunction))
        own = {name: inspect.getsource(function) for name, function in sources.items()}
        text, found = "\n".join(self._made), dict[str, str]()
        for name, source in sorted(own.items(), key=lambda item: -sources[item[0]].__code__.co_firstlineno):
            if re.search(rf"\b{name}\(", text):
                found[name] = source
                text += source
        return list(found.values())[::-1]

    def _add(self, node: Any) -> None:
        given = [self._known[value.debugName()] for value in node.inputs()]
        outputs = [value.debugName() for value in node.outputs()]
        if node.kind() == "prim::ListUnpack":
            names = self._named(given[0], len(outputs)).split(", ")
            self._known |= dict(zip(outputs, names, strict=True))
        else:
            self._known[outputs[0]] = self._result(node, outputs[0], given)

    def _result(self, node: Any, output: str, given: list[Any]) -> Any:
        kind: str = node.kind()
        if kind == "prim::Constant":
            return self._constant(output, node.output().toIValue())
        if kind == "prim::GetAttr":
            return self._constant(node.s("name"), getattr(given[0], node.s("name")))
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return given
        if kind in ("prim::NumToTensor", "aten::Int"):
            return given[0]
        operation = kind.removeprefix("aten::").removesuffix("_")  # what is overwritten is not read again
        if operation not in _OPERATIONS:
            raise NotInNumpyError(f"this policy computes {kind}, which has no translation to numpy")
        try:
            text = _OPERATIONS[operation](*given)
        except TypeError as error:  # it is given more than the forms that are known
            raise NotInNumpyError(f"this policy computes {kind} in a form without translation to numpy") from error
        if text in given or operation in _SPLITS:
            return text
        return given[0] if operation in _OFTEN_DONE and self._is_done(given[0], text) else self._named(text)

    def _is_done(self, name: str, text: str) -> bool:
        """True if an array already has the form that an operation would give, for instance flat, or a dtype."""
        step = text.removeprefix(name).replace(f"({name})", "()")
        texts = {made: text for text, made in self._made.items()}
        while name in texts:
            name, dot, last = texts[name].partition(".")
            if f"{dot}{last}".replace(f"({name})", "()") == step:
                return True
            if not last.startswith(("reshape(len(", "astype(")):
                return False
        return False

    def _named(self, text: str, count: int = 1) -> str:
        """Name of an expression's result, or names of the parts of a split."""
        if text not in self._made:
            first = sum(names.count(",") + 1 for names in self._made.values()) + 1
            self._made[text] = ", ".join(f"x{first + index}" for index in range(count))
        return self._made[text]

    def _constant(self, name: str, constant: Any) -> Any:
        """Return a constant unchanged; for a tensor the number, or the text to read the array."""
        if not isinstance(constant, torch.Tensor):
            return constant
        if not constant.dim():
            return constant.item()
        name = re.sub(r"^((self|portable|head|network)\.)+", "", name)
        name, array = name if name[0].isalpha() else f"constant_{len(self.arrays)}", constant.detach().numpy()
        while name in self.arrays and not np.array_equal(self.arrays[name], array):
            name += "_"
        self.arrays[name] = array
        return f'w["{name}"]'


def _number(value: Any) -> str:
    """A text, or a constant as text."""
    return f"np.float32({str(value)!r})" if value in (float("inf"), float("-inf")) else str(value)


def _plain(sign: str) -> Callable[..., str]:
    """`+` or `-`; the third input is a factor of the second."""

    def text(left: Any, right: Any, factor: Any = 1) -> str:
        if right == 0:
            return str(left)
        scaled = right if factor == 1 else f"{_number(factor)} * {_number(right)}"
        return f"{_number(left)} {sign} {_number(scaled)}"

    return text


def _called(name: str) -> Callable[..., str]:
    """A function of an array."""
    return lambda x, *_: f"{name}({x})"


def _convolution(x: str, weight: str, bias: str | None, stride: Any, padding: Any, dilation: Any, *others: Any) -> str:
    transposed, _, groups = others[:3]
    if transposed or groups != 1 or set(dilation) != {1} or len(stride) != 2:
        raise NotInNumpyError("this policy has a convolution that is transposed, dilated or in groups")
    return f"convolution({x}, {weight}, {bias}, {stride}, {padding})"


def _flat(x: str, first: int, last: int) -> str:
    if first != 1 or last != -1:
        raise NotInNumpyError(f"this policy flattens axes {first} to {last}")
    return f"{x}.reshape(len({x}), -1)"


def _average(x: str, kernel: Any, stride: Any, padding: Any, ceil: bool, counts_padding: bool, divisor: Any) -> str:
    if ceil or not counts_padding or divisor is not None:
        raise NotInNumpyError("this policy has a mean of windows of an unusual kind")
    return f"average({x}, {kernel}, {stride or kernel}, {padding})"


def _elu(x: str, *factors: float) -> str:
    if set(factors) != {1}:
        raise NotInNumpyError("this policy has an elu with factors of its own")
    return f"elu({x})"


def _sliced(x: str, axis: int, first: int, end: int, step: int) -> str:
    last = "" if end >= _END else end
    return f"{x}[{':, ' * axis}{first}:{last}{f':{step}' if step != 1 else ''}]" if (first, last) != (0, "") else x


def _reduced(name: str) -> Callable[..., str]:
    return lambda x, axes, keeps, *_: f"{x}.{name}({_axes(axes)}{', keepdims=True' if keeps else ''})"


def _axes(axes: Sequence[Any]) -> str:
    """Text of axes or sizes, some of which may be expressions."""
    return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"


def _joined(name: str) -> Callable[..., str]:
    return lambda arrays, axis: f"np.{name}([{', '.join(map(str, arrays))}], {axis})"


def _parts_of(sizes: Sequence[int]) -> list[int]:
    return [int(end) for end in np.cumsum(sizes)[:-1]]


_OFTEN_DONE = {"flatten", "to"}
"""Operations that traces repeat."""
_SPLITS = {"chunk", "unsafe_chunk", "split_with_sizes", "unbind"}
"""Operations with several resulting arrays."""

_OPERATIONS: Mapping[str, Callable[..., str]] = {
    "abs": _called("np.abs"),
    "add": _plain("+"),
    "addmm": lambda bias, x, weight, *_: f"{x} @ {weight} + {bias}",
    "amax": _reduced("max"),
    "amin": _reduced("min"),
    "argmax": lambda x, axis, _: f"{x}.argmax({axis})",
    "avg_pool2d": _average,
    "baddbmm": lambda bias, x, weight, *_: f"{x} @ {weight} + {bias}",
    "batch_norm": lambda x, w, b, mean, variance, training, momentum, epsilon, _: (
        f"batch_norm({x}, {w}, {b}, {mean}, {variance}, {epsilon})"
    ),
    "bitwise_not": lambda x: f"~{x}",
    "chunk": lambda x, count, axis: f"np.split({x}, {count}, {axis})",
    "cat": _joined("concatenate"),
    "clamp": lambda x, low, high: f"{x}.clip({low}, {high})",
    "clone": lambda x, *_: x,  # what is overwritten is not read again
    "contiguous": lambda x, *_: x,
    "_convolution": _convolution,
    "detach": lambda x: x,
    "div": lambda left, right: f"{_number(left)} / {_number(right)}",
    "dropout": lambda x, *_: x,
    "elu": _elu,
    "exp": _called("np.exp"),
    "expand": lambda x, *_: x,  # numpy broadcasts axes of length 1 by itself
    "flatten": _flat,
    "gelu": lambda x, approximate: f"gelu{'_tanh' if approximate == 'tanh' else ''}({x})",
    "gt": lambda left, right: f"{left} > {_number(right)}",
    "layer_norm": lambda x, shape, w, b, epsilon, _: f"layer_norm({x}, {len(shape)}, {w}, {b}, {epsilon})",
    "leaky_relu": lambda x, slope: f"leaky_relu({x}, {slope})",
    "linear": lambda x, weight, bias: f"{x} @ {weight}.T{'' if bias is None else f' + {bias}'}",
    "log": _called("np.log"),
    "masked_fill": lambda x, mask, value: f"np.where({mask}, {_number(value)}, {x})",
    "matmul": lambda left, right: f"{left} @ {right}",
    "mean": _reduced("mean"),
    "mul": lambda left, right: str(left) if right == 1 else f"{_number(left)} * {_number(right)}",
    "neg": lambda x: f"-{x}",
    "new_full": lambda x, shape, number, *_: f"np.full({_axes(shape)}, {number}, {x}.dtype)",
    "one_hot": lambda x, classes: f"one_hot({x}, {classes})",
    "permute": lambda x, axes: f"{x}.transpose({_axes(axes)})",
    "relu": _called("relu"),
    "reshape": lambda x, shape: f"{x}.reshape({_axes(shape)})",
    "rsqrt": lambda x: f"1 / np.sqrt({x})",
    "scatter": lambda x, axis, index, value: f"scatter({x}, {axis}, {index}, {value})",
    "sigmoid": _called("sigmoid"),
    "sign": _called("np.sign"),
    "silu": _called("silu"),
    "size": lambda x, axis: f"{x}.shape[{axis}]",
    "slice": _sliced,
    "softmax": lambda x, axis, _: f"softmax({x}, {axis})",
    "softplus": _called("softplus"),
    "split_with_sizes": lambda x, sizes, axis: f"np.split({x}, {_parts_of(sizes)}, {axis})",
    "sqrt": _called("np.sqrt"),
    "squeeze": lambda x, axis: f"{x}.squeeze({axis})",
    "stack": _joined("stack"),
    "sub": _plain("-"),
    "sum": _reduced("sum"),
    "tanh": _called("np.tanh"),
    "to": lambda x, dtype, *_: f"{x}.astype(np.{_DTYPES[dtype]}, copy=False)",
    "transpose": lambda x, one, other: f"{x}.swapaxes({one}, {other})",
    "unsafe_chunk": lambda x, count, axis: f"np.split({x}, {count}, {axis})",
    "unsqueeze": lambda x, axis: f"np.expand_dims({x}, {axis})",
    "var": lambda x, axes, correction, keeps: f"{x}.var({_axes(axes)}, ddof={correction}, keepdims={keeps})",
    "view": lambda x, shape: f"{x}.reshape({_axes(shape)})",
    "zeros": lambda shape, dtype, *_: f"np.zeros({_axes(shape)}, np.{_DTYPES[dtype or 6]})",
}
"""Translation of torch's operations to numpy, given texts and constants."""
