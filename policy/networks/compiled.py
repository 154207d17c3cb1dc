"""Runs programs by numpy: the forward pass of a network's output."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from remuda.environments.packed_part import PackedPart
from remuda.policy.networks import numpy_functions
from remuda.policy.networks.layouts import vector_of
from remuda.policy.networks.normalisation import CLIP, Moments
from remuda.policy.networks.program import (
    Append,
    Apply,
    BatchNorm,
    Convolution,
    Dense,
    Dueling,
    Flatten,
    Function,
    Interpolation,
    LayerNorm,
    MaxPool,
    Normalise,
    Parts,
    ReadPixels,
    Residual,
    Scale,
    Step,
    Steps,
    UnitLength,
)
from remuda.policy.spaces import ObservationSpec

Arrays = Mapping[str, np.ndarray]
Floats = NDArray[np.float32]
Forward = Callable[[np.ndarray], Floats]
"""Maps encoded observations (see ObservationSpec.encode) [n, …] to outputs, float32 [n, outputs]."""

_FUNCTIONS: Mapping[Function, Callable[[Floats], Floats]] = {
    "relu": lambda rows: np.maximum(rows, np.float32(0.0), out=rows),
    "tanh": lambda rows: np.tanh(rows, out=rows),
    "sigmoid": numpy_functions.sigmoid,
    "elu": numpy_functions.elu,
    "silu": numpy_functions.silu,
    "gelu": numpy_functions.gelu,
    "gelu_tanh": numpy_functions.gelu_tanh,
    "softplus": numpy_functions.softplus,
    "leaky_relu": numpy_functions.leaky_relu,
}
"""Functions of each number of an array; some overwrite the array."""


def compiled(steps: Steps, arrays: Arrays, observation: ObservationSpec) -> Forward:
    """Make the forward pass of these steps by numpy. Copies weights only to change their order.

    `observation`: the description of the inputs, for steps on parts. Raises KeyError for a missing array.
    """
    return _Compiler(arrays, observation).chain(steps)


class _Compiler:
    def __init__(self, arrays: Arrays, observation: ObservationSpec) -> None:
        self._arrays, self._observation = arrays, observation

    def chain(self, steps: Steps) -> Forward:
        functions = [
            self._function(step, steps[:index], steps[index + 1 :])
            for index, step in enumerate(steps)
            if not (isinstance(step, Apply) and index and _takes_function(steps[index - 1]))
        ]
        if not functions:
            return lambda inputs: inputs
        if len(functions) == 1:
            return functions[0]

        def run(inputs: np.ndarray) -> Floats:
            given = inputs
            for function in functions:
                given = function(given)
            return given

        return run

    def _function(self, step: Step, before: Steps, after: Steps) -> Forward:
        """The function of a step, with a function after it if the step takes one."""
        following = after[0] if after else None
        function = _FUNCTIONS[following.function] if isinstance(following, Apply) else None
        if _is_layer(step):
            weight, bias = _layer(step, self._arrays)
            channels = self._channels(before[:-1]) if before and isinstance(before[-1], Flatten) else None
            return _dense(weight if channels is None else _for_pixels_first(weight, channels), bias, function)
        if isinstance(step, Convolution):
            reads = before[-1] if before else None
            return _filters(step, self._arrays, function, reads.scale if isinstance(reads, ReadPixels) else 1.0)
        if isinstance(step, ReadPixels):
            scale = 1.0 if isinstance(following, Convolution) else step.scale
            return lambda images: _pixels(images, step.channels_last, scale)
        if isinstance(step, Flatten):
            if self._channels(before) is not None and _is_layer(following):
                return _flat  # the pixels as they lie in memory, which saves a copy: the layer's weights are reordered
            return lambda images: _flat(images.transpose(0, 3, 1, 2) if images.ndim == 4 else images)
        return self._other(step)

    def _channels(self, steps: Steps) -> int | None:
        """Number of filters of a convolution at the end, with or without a function after it; None for other ends."""
        last = steps[:-1] if steps and isinstance(steps[-1], Apply) else steps
        return len(self._arrays[last[-1].weight]) if last and isinstance(last[-1], Convolution) else None

    def _other(self, step: Step) -> Forward:
        if isinstance(step, Normalise | LayerNorm | BatchNorm):
            return self._normalisation(step)
        if isinstance(step, Append | UnitLength | Scale):
            return self._of_rows(step)
        if isinstance(step, MaxPool):
            return lambda images: _largest(images, step)
        if isinstance(step, Residual):
            inner = self.chain(step.steps)
            return lambda rows: rows + inner(rows)
        if isinstance(step, Interpolation):
            inner, share = self.chain(step.steps), self._of_rows(step.share)
            return lambda rows: rows + share(inner(rows) - rows)
        if isinstance(step, Dueling):
            return _dueling(self.chain(step.value), self.chain(step.advantage))
        if isinstance(step, Apply):
            function = _FUNCTIONS[step.function]
            return lambda rows: function(rows.copy())
        assert isinstance(step, Parts)
        return self._parts(step)

    def _normalisation(self, step: Normalise | LayerNorm | BatchNorm) -> Forward:
        if isinstance(step, Normalise):
            return _normaliser(self._arrays[step.mean], self._arrays[step.variance])
        weight, bias = (None if name is None else self._arrays[name] for name in (step.weight, step.bias))
        if isinstance(step, LayerNorm):
            return lambda rows: numpy_functions.layer_norm(rows, 1, weight, bias, step.epsilon)
        scale: Floats = (self._arrays[step.variance] + np.float32(step.epsilon)) ** np.float32(-0.5)
        scale = scale if weight is None else scale * weight
        offset: Floats = -self._arrays[step.mean] * scale
        offset = offset if bias is None else offset + bias
        return lambda rows: rows * scale + offset

    def _of_rows(self, step: Append | UnitLength | Scale) -> Forward:
        if isinstance(step, Append):
            return lambda rows: np.pad(rows, ((0, 0), (0, 1)), constant_values=step.number)
        if isinstance(step, UnitLength):
            return lambda rows: numpy_functions.unit_length(rows, UnitLength.LEAST_SQUARE)
        scale: Floats = self._arrays[step.weight] * np.float32(step.times)
        return lambda rows: rows * scale

    def _parts(self, step: Parts) -> Forward:
        parts, images = self._observation.parts, [index for index, _ in step.images]
        vectors = [part for index, part in enumerate(parts) if index not in images]
        read: list[Forward] = [functools.partial(vector_of, part) for part in vectors]
        read += [self._image(parts[index], own) for index, own in step.images]
        return lambda rows: np.concatenate([each(rows) for each in read], axis=1)

    def _image(self, part: PackedPart, steps: Steps) -> Forward:
        spec = ObservationSpec(part.shape, part.dtype, part.low, part.high)
        read = _Compiler(self._arrays, spec).chain(steps)
        return lambda rows: read(spec.encode(part.of(rows)))


_Applied = Callable[[Floats], Floats] | None
"""A function of a step's outputs, which it may overwrite."""


def _is_layer(step: Step | None) -> TypeGuard[Dense | Dueling]:
    """True for a dense layer, and for a dueling head of two layers, which becomes one layer."""
    if isinstance(step, Dueling):
        halves = (*step.value, *step.advantage)
        return len(halves) == 2 and all(isinstance(half, Dense) and half.bias is not None for half in halves)
    return isinstance(step, Dense)


def _takes_function(step: Step) -> bool:
    return _is_layer(step) or isinstance(step, Convolution)


def _layer(step: Dense | Dueling, arrays: Arrays) -> tuple[np.ndarray, np.ndarray | None]:
    """The weight [inputs, outputs] and the bias of a layer.

    Merges the two layers of a dueling head: value plus advantage minus its mean is linear in both halves.
    """
    if isinstance(step, Dueling):
        (of_state, value_bias), (of_actions, advantage_bias) = (
            _layer(half, arrays) for half in (*step.value, *step.advantage) if isinstance(half, Dense)
        )
        assert value_bias is not None
        assert advantage_bias is not None
        less_mean = of_actions - of_actions.mean(axis=1, keepdims=True)
        weight = np.concatenate((np.broadcast_to(of_state, less_mean.shape), less_mean))
        return weight, advantage_bias - advantage_bias.mean() + value_bias
    weight, bias = arrays[step.weight], None if step.bias is None else arrays[step.bias]
    if step.index is None:
        return weight.T, bias
    return weight[step.index], None if bias is None else bias[step.index, 0]


def _for_pixels_first(weight: np.ndarray, channels: int) -> np.ndarray:
    """The weight for inputs in the order height, width, channels in place of channels, height, width."""
    outputs = weight.shape[1]
    return np.ascontiguousarray(weight.reshape(channels, -1, outputs).swapaxes(0, 1).reshape(-1, outputs))


def _dense(weight: np.ndarray, bias: np.ndarray | None, function: _Applied) -> Forward:
    def run(rows: np.ndarray) -> Floats:
        hidden: Floats = rows @ weight
        if bias is not None:
            hidden += bias
        return hidden if function is None else function(hidden)

    return run


def _filters(step: Convolution, arrays: Arrays, function: _Applied, scale: float) -> Forward:
    """A convolution as a matrix product over the windows of the images. `scale`: factor of the images, multiplied into
    the filters, which are smaller."""
    weight = arrays[step.weight]
    matrix = np.ascontiguousarray(weight.transpose(2, 3, 1, 0)).reshape(-1, len(weight)) * np.float32(scale)
    of_windows = _dense(matrix, None if step.bias is None else arrays[step.bias], function)

    def run(images: np.ndarray) -> Floats:
        windows = _windows(_padded(images, step.padding), weight.shape[2:], step.stride)
        return of_windows(windows.reshape(-1, len(matrix))).reshape(*windows.shape[:3], -1)

    return run


def _normaliser(mean: np.ndarray, variance: np.ndarray) -> Forward:
    scale = Moments(mean, variance, count=0.0).scale
    as_numbers = {np.dtype(kind): (mean.astype(kind), scale.astype(kind)) for kind in (np.float32, np.float64)}

    def normalise(rows: np.ndarray) -> Floats:
        own_mean, own_scale = as_numbers[rows.dtype]
        normalised: Floats = ((rows - own_mean) * own_scale).clip(-CLIP, CLIP).astype(np.float32, copy=False)
        return normalised

    return normalise


def _dueling(value: Forward, advantage: Forward) -> Forward:
    def run(rows: np.ndarray) -> Floats:
        of_state, of_actions = np.split(rows, 2, axis=1)
        advantages = advantage(of_actions)
        values: Floats = value(of_state) + advantages - advantages.mean(axis=1, keepdims=True)
        return values

    return run


def _pixels(images: np.ndarray, channels_last: bool, scale: float) -> Floats:
    pixels = images if channels_last else images.transpose(0, 2, 3, 1)
    floats: Floats = np.ascontiguousarray(pixels).astype(np.float32)
    if scale != 1.0:
        floats *= np.float32(scale)
    return floats


def _flat(images: np.ndarray) -> Floats:
    return images.reshape(len(images), -1)


def _largest(images: np.ndarray, step: MaxPool) -> Floats:
    windows = _windows(_padded(images, step.padding, by=-np.inf), step.kernel, step.stride)
    largest: Floats = windows[:, :, :, 0, 0].copy()
    for row, column in np.ndindex(step.kernel):  # several times as fast as one maximum over short axes
        np.maximum(largest, windows[:, :, :, row, column], out=largest)
    return largest


def _padded(images: np.ndarray, padding: tuple[int, int], *, by: float = 0.0) -> np.ndarray:
    rows, columns = padding
    if not (rows or columns):
        return images
    return np.pad(images, ((0, 0), (rows, rows), (columns, columns), (0, 0)), constant_values=by)


def _windows(images: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, int]) -> np.ndarray:
    """View [n, height, width, channels] as [n, rows, columns, kernel height, kernel width, channels]."""
    images = np.ascontiguousarray(images)
    n, height, width, channels = images.shape
    image, row, column, channel = images.strides
    rows, columns = ((side - own) // step + 1 for side, own, step in zip((height, width), kernel, stride, strict=True))
    return np.lib.stride_tricks.as_strided(
        images,
        (n, rows, columns, *kernel, channels),
        (image, row * stride[0], column * stride[1], row, column, channel),
        writeable=False,
    )
