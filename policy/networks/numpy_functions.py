"""Functions of torch in numpy: for collectors, and for `remuda export --format numpy`, which copies their text.

Each needs only numpy as `np` and the functions above it, and does not change its inputs.
"""

from __future__ import annotations

import numpy as np


def relu(x: np.ndarray) -> np.ndarray:
    """Negative numbers become 0."""
    raised: np.ndarray = np.maximum(x, 0)
    return raised


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    halved: np.ndarray = np.tanh(x / 2)
    return (halved + 1) / 2


def silu(x: np.ndarray) -> np.ndarray:
    """x * sigmoid(x)."""
    bent: np.ndarray = x * sigmoid(x)
    return bent


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Probabilities by logits."""
    raised: np.ndarray = np.exp(x - x.max(axis, keepdims=True))
    shares: np.ndarray = raised / raised.sum(axis, keepdims=True)
    return shares


def elu(x: np.ndarray) -> np.ndarray:
    """Negative numbers go to -1."""
    bent: np.ndarray = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    return bent


def softplus(x: np.ndarray) -> np.ndarray:
    """A smooth relu."""
    smooth: np.ndarray = np.logaddexp(x, x.dtype.type(0))
    return smooth


def leaky_relu(x: np.ndarray, slope: float = 0.01) -> np.ndarray:
    """Negative numbers become smaller."""
    bent: np.ndarray = np.where(x > 0, x, slope * x)
    return bent


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The Gaussian error linear unit, by tanh."""
    inner: np.ndarray = np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    weighed: np.ndarray = x * (inner + 1) / 2
    return weighed


def erf(x: np.ndarray) -> np.ndarray:
    """The error function to 1.2e-7 (Abramowitz and Stegun 1964, 7.1.28, in the form of Numerical Recipes' erfc)."""
    size = np.abs(x, dtype=np.float64)
    t = 1.0 / (1.0 + 0.5 * size)
    inner = np.zeros_like(t)
    for term in (
        *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
        *(-0.18628806, 0.09678418, 0.37409196, 1.00002368),
    ):
        inner = (inner + term) * t
    complement = t * np.exp(-size * size - 1.26551223 + inner)
    found: np.ndarray = np.where(x >= 0, 1.0 - complement, complement - 1.0)
    return found


def gelu(x: np.ndarray) -> np.ndarray:
    """The Gaussian error linear unit: x times the normal distribution function of x."""
    weighed: np.ndarray = x * (0.5 + 0.5 * erf(x / x.dtype.type(np.sqrt(2.0)))).astype(x.dtype)
    return weighed


def layer_norm(
    x: np.ndarray, axes: int, weight: np.ndarray | None, bias: np.ndarray | None, epsilon: float
) -> np.ndarray:
    """Mean 0 and variance 1 over the last axes."""
    last = tuple(range(-axes, 0))
    centred = x - x.mean(last, keepdims=True)
    scaled: np.ndarray = centred / np.sqrt(np.square(centred).mean(last, keepdims=True) + x.dtype.type(epsilon))
    scaled = scaled if weight is None else scaled * weight
    return scaled if bias is None else scaled + bias


def unit_length(x: np.ndarray, least_square: float) -> np.ndarray:
    """Each row by its length."""
    scaled: np.ndarray = x / np.sqrt(np.square(x).sum(1, keepdims=True).clip(least_square))
    return scaled


def batch_norm(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray, epsilon: float
) -> np.ndarray:
    """Normalise each channel by running moments."""
    scale = weight / np.sqrt(variance + np.float32(epsilon))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scaled: np.ndarray = x * scale.reshape(shape) + (bias - mean * scale).reshape(shape)
    return scaled


def windows(x: np.ndarray, kernel: tuple[int, ...], stride: list[int], padding: list[int]) -> np.ndarray:
    """Windows of images: [n, channels, height, width, *kernel]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0], padding[0]), (padding[1], padding[1])))
    seen: np.ndarray = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))
    return seen[:, :, :: stride[0], :: stride[1]]


def convolution(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: list[int], padding: list[int]
) -> np.ndarray:
    """Filters over images [n, channels, height, width]."""
    seen = windows(x, weight.shape[2:], stride, padding)
    outputs: np.ndarray = np.tensordot(seen, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return outputs if bias is None else outputs + bias[:, None, None]


def average(x: np.ndarray, kernel: list[int], stride: list[int], padding: list[int]) -> np.ndarray:
    """Means of windows of images, including padding."""
    mean: np.ndarray = windows(x, tuple(kernel), stride, padding).mean((4, 5))
    return mean


def one_hot(x: np.ndarray, classes: int) -> np.ndarray:
    """1 at every index, 0 elsewhere."""
    ones: np.ndarray = (x[..., None] == np.arange(classes)).astype(np.int64)
    return ones


def scatter(into: np.ndarray, axis: int, index: np.ndarray, value: float) -> np.ndarray:
    """Write a number at every index."""
    filled = into.copy()
    np.put_along_axis(filled, index, value, axis)
    return filled
