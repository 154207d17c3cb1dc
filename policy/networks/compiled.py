"""Runs programs by numpy: the forward pass of a network's output."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from remuda.environments.packed_part import PackedPart
from remuda.policy.networks import numpy_functions
from remuda.policy.networks.layouts import vector_of
from remuda.policy.networks.normalisation import CLIP, Moments
from remuda.policy.networks.program import (
    Apply,
    BatchNorm,
    Convolution,
    Dense,
    Dueling,
    Flatten,
    Function,
    LayerNorm,
    MaxPool,
    Normalise,
    Parts,
    ReadPixels,
    Residual,
    Step,
    Steps,
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
        functions = list(map(self._step, self._ordered(_Merging(self._arrays).of(steps))))
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

    def _ordered(self, steps: list[_Runnable]) -> list[_Runnable]:
        """Let dense layers after images read the pixels in memory order, which saves a copy."""
        ordered: list[_Runnable] = []
        for index, step in enumerate(steps):
            if isinstance(step, Flatten) and index and index + 1 < len(steps):
                before, after = steps[index - 1], steps[index + 1]
                if isinstance(before, _Filters) and isinstance(after, _Perceptron):
                    steps[index + 1] = after.for_pixels_first(len(before.weight))
                    ordered.append(_flat)
                    continue
            ordered.append(steps[index])
        return ordered

    def _step(self, step: _Runnable) -> Forward:
        if callable(step):
            return step
        if isinstance(step, Normalise | LayerNorm | BatchNorm):
            return self._normalisation(step)
        if isinstance(step, ReadPixels):
            return lambda images: _pixels(images, step)
        if isinstance(step, Flatten):
            return lambda images: _flat(images.transpose(0, 3, 1, 2) if images.ndim == 4 else images)
        if isinstance(step, MaxPool):
            return lambda images: _largest(images, step)
        if isinstance(step, Residual):
            inner = self.chain(step.steps)
            return lambda rows: rows + inner(rows)
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


_Layer = tuple[np.ndarray, np.ndarray | None, Function | None]
"""A weight [inputs, outputs], a bias, and the function of the outputs."""


class _Perceptron:
    """Successive dense layers, each followed by a function."""

    def __init__(self, layers: list[_Layer]) -> None:
        self._layers = layers

    def for_pixels_first(self, channels: int) -> _Perceptron:
        """Return these layers for inputs in the order height, width, channels, in place of channels, height, width."""
        (weight, bias, function), *others = self._layers
        outputs = weight.shape[1]
        reordered = weight.reshape(channels, -1, outputs).swapaxes(0, 1).reshape(-1, outputs)
        return _Perceptron([(np.ascontiguousarray(reordered), bias, function), *others])

    def __call__(self, rows: np.ndarray) -> Floats:
        hidden: Floats = rows
        for weight, bias, function in self._layers:
            hidden = hidden @ weight
            if bias is not None:
                hidden += bias
            if function is not None:
                hidden = _FUNCTIONS[function](hidden)
        return hidden


class _Filters:
    """A convolution as a matrix product over the windows of the images, followed by a function."""

    def __init__(self, step: Convolution, arrays: Arrays, function: Function | None, scale: float) -> None:
        """`scale`: factor of the images, multiplied into the filters, which are smaller."""
        self.weight = arrays[step.weight]
        self._matrix = np.ascontiguousarray(self.weight.transpose(2, 3, 1, 0)).reshape(-1, len(self.weight))
        self._matrix *= np.float32(scale)
        self._bias = None if step.bias is None else arrays[step.bias]
        self._stride, self._padding = step.stride, step.padding
        self._function = None if function is None else _FUNCTIONS[function]

    def __call__(self, images: np.ndarray) -> Floats:
        windows = _windows(_padded(images, self._padding), self.weight.shape[2:], self._stride)
        hidden: Floats = windows.reshape(-1, len(self._matrix)) @ self._matrix
        if self._bias is not None:
            hidden += self._bias
        if self._function is not None:
            hidden = self._function(hidden)
        return hidden.reshape(*windows.shape[:3], -1)


_Runnable = Step | _Perceptron | _Filters | Forward


class _Merging:
    """Merges dense layers and convolutions with the functions after them."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._merged: list[_Runnable] = []
        self._dense: list[_Layer] = []
        self._filters: Convolution | None = None
        self._scale = 1.0
        """Scale of the images for the next convolution."""

    def of(self, steps: Steps) -> list[_Runnable]:
        """Return the merged steps."""
        for step, after in itertools.zip_longest(steps, steps[1:]):
            layer = self._layer(step)
            if layer is not None:
                self._close_filters()
                self._dense.append(layer)
            elif not (isinstance(step, Apply) and self._applied(step.function)):
                self._add(step, after)
        self._close()
        return self._merged

    def _layer(self, step: Step) -> _Layer | None:
        if isinstance(step, Dense):
            return (*_matrix(step, self._arrays), None)
        return _folded(step, self._arrays) if isinstance(step, Dueling) else None

    def _applied(self, function: Function) -> bool:
        """Merge a function into the step before; False if the step already has a function."""
        if self._dense and self._dense[-1][2] is None:
            self._dense[-1] = (*self._dense[-1][:2], function)
            return True
        return self._close_filters(function)

    def _add(self, step: Step, after: Step | None) -> None:
        self._close()
        if isinstance(step, Convolution):
            self._filters = step
        elif isinstance(step, ReadPixels) and isinstance(after, Convolution):
            self._scale = step.scale
            self._merged.append(ReadPixels(step.channels_last, 1.0))
        else:
            self._merged.append(step)

    def _close(self) -> None:
        self._close_filters()
        if self._dense:
            self._merged.append(_Perceptron(self._dense))
            self._dense = []

    def _close_filters(self, function: Function | None = None) -> bool:
        if self._filters is None:
            return False
        self._merged.append(_Filters(self._filters, self._arrays, function, self._scale))
        self._filters, self._scale = None, 1.0
        return True


def _folded(step: Dueling, arrays: Arrays) -> _Layer | None:
    """Merge a dueling head of two layers into one layer: value plus advantage minus its mean is linear in both halves.
    None for heads with more layers."""
    (value, *more), (advantage, *others) = step.value, step.advantage
    if more or others or not isinstance(value, Dense) or not isinstance(advantage, Dense):
        return None
    (of_state, value_bias), (of_actions, advantage_bias) = _matrix(value, arrays), _matrix(advantage, arrays)
    less_mean = of_actions - of_actions.mean(axis=1, keepdims=True)
    weight = np.concatenate((np.broadcast_to(of_state, less_mean.shape), less_mean))
    if value_bias is None or advantage_bias is None:
        return None
    return weight, advantage_bias - advantage_bias.mean() + value_bias, None


def _matrix(step: Dense, arrays: Arrays) -> tuple[np.ndarray, np.ndarray | None]:
    """The weight [inputs, outputs] and the bias of a layer."""
    weight, bias = arrays[step.weight], None if step.bias is None else arrays[step.bias]
    if step.index is None:
        return weight.T, bias
    return weight[step.index], None if bias is None else bias[step.index, 0]


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


def _pixels(images: np.ndarray, step: ReadPixels) -> Floats:
    pixels = images if step.channels_last else images.transpose(0, 2, 3, 1)
    floats: Floats = np.ascontiguousarray(pixels).astype(np.float32)
    if step.scale != 1.0:
        floats *= np.float32(step.scale)
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
