"""A forward pass in plain arrays: numpy alone, for collectors that need no torch.

For perceptrons it is as fast as torch, traced and frozen or not, at every size that was tried, and a collector that
never imports torch starts a second and a half sooner (benchmarks/inference.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from remuda.policy.acting.weights import Filters, Forward, Weights
from remuda.policy.networks.parts import ImagePart, PartsLayout, vector_of

_Floats = NDArray[np.float32]


def plain_forward(weights: Weights) -> Forward:
    """Make the forward pass of these weights, which are copied only if they need another order."""
    if weights.parts is not None:
        features = _parts(weights, weights.parts)
        if not weights.dense:
            return features
        after = _perceptron(weights)
        return lambda rows: after(features(rows))
    if not weights.dense:
        return _features(weights)
    perceptron = _perceptron(weights)
    if not weights.filters:
        return perceptron
    convolve = _convolutions(weights.filters, channels_last=weights.channels_last)
    return lambda images: perceptron(convolve(images).reshape(len(images), -1))


def _features(weights: Weights) -> Forward:
    """Without dense layers: the observations, or what the convolutions make of images, as channels, height, width."""
    if not weights.filters:
        return lambda observations: observations
    return _channels_first(_convolutions(weights.filters, channels_last=weights.channels_last))


def _channels_first(convolve: Callable[[np.ndarray], _Floats]) -> Forward:
    return lambda images: convolve(images).transpose(0, 3, 1, 2).reshape(len(images), -1)


def _parts(weights: Weights, layout: PartsLayout) -> Forward:
    """What a PartsTrunk makes of rows of bytes."""
    read = [functools.partial(vector_of, part) for part in layout.vectors]
    for image, filters in zip(layout.images, weights.parts_filters, strict=True):
        last = image.layout.pixels.channels_last
        read.append(functools.partial(_image, image, _channels_first(_convolutions(filters, channels_last=last))))
    return lambda rows: np.concatenate([each(rows) for each in read], axis=1)


def _image(image: ImagePart, convolve: Forward, rows: np.ndarray) -> _Floats:
    return convolve(image.observation.encode(image.part.of(rows)))


def _perceptron(weights: Weights) -> Forward:
    layers = [(layer.weight.T, layer.bias) for layer in weights.dense]
    if weights.filters:
        layers[0] = (_for_pixels_first(layers[0][0], len(weights.filters[-1].bias)), layers[0][1])
    between, (last_weight, last_bias) = layers[:-1], layers[-1]
    tanh = weights.activation == "tanh"

    def forward(observations: np.ndarray) -> _Floats:
        hidden: _Floats = observations
        for weight, bias in between:
            hidden = hidden @ weight
            hidden += bias
            np.tanh(hidden, out=hidden) if tanh else np.maximum(hidden, 0.0, out=hidden)
        outputs: _Floats = hidden @ last_weight
        outputs += last_bias
        return outputs

    return forward


def _convolutions(filters: Sequence[Filters], *, channels_last: bool) -> Callable[[np.ndarray], _Floats]:
    """Each layer is one matrix product over the windows of its image, [n, height, width, channels] throughout."""
    layers = [(np.ascontiguousarray(layer.weight.transpose(2, 3, 1, 0)), layer.bias, layer.stride) for layer in filters]

    def convolve(images: np.ndarray) -> _Floats:
        pixels = images if channels_last else images.transpose(0, 2, 3, 1)
        hidden: _Floats = np.ascontiguousarray(pixels).astype(np.float32)
        for weight, bias, stride in layers:
            windows = _windows(hidden, len(weight), stride)
            hidden = windows.reshape(-1, weight[..., 0].size) @ weight.reshape(-1, len(bias))
            hidden += bias
            np.maximum(hidden, 0.0, out=hidden)
            hidden = hidden.reshape(*windows.shape[:3], len(bias))
        return hidden

    return convolve


def _windows(images: _Floats, kernel: int, stride: int) -> _Floats:
    """View [n, height, width, channels] as [n, rows, columns, kernel, kernel, channels]."""
    n, height, width, channels = images.shape
    image, row, column, channel = images.strides
    rows, columns = ((side - kernel) // stride + 1 for side in (height, width))
    return np.lib.stride_tricks.as_strided(
        images,
        (n, rows, columns, kernel, kernel, channels),
        (image, row * stride, column * stride, row, column, channel),
        writeable=False,
    )


def _for_pixels_first(weight: _Floats, channels: int) -> _Floats:
    """Reorder a layer [inputs, outputs] that reads channels, height, width to read height, width, channels."""
    outputs = weight.shape[1]
    reordered: _Floats = weight.reshape(channels, -1, outputs).swapaxes(0, 1).reshape(-1, outputs)
    return np.ascontiguousarray(reordered)
