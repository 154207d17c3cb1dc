"""Conversions between arrays and torch, settings of torch, and rescaling of values."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch

from remuda.config.errors import Error
from remuda.policy.saved_state import misfits


class DeviceError(Error, ValueError):
    """The device of the config does not exist on this machine, or in this torch."""


_UNKNOWN_NAME = "device type at start of device string"
"""Part of torch's message for an unknown name; the rest lists twenty kinds of devices."""


def usable(device: str, *, setting: str) -> torch.device:
    """Return the device of a setting. Raises DeviceError for a missing device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch has both, for a wrong name and for a missing GPU
        # Of a device that this torch was built without, the rest tells on many lines what it was built with.
        why = str(error).splitlines()[0].partition(". ")[0].removesuffix(".")
        why = "there is no device of this name" if _UNKNOWN_NAME in why else why
        here = "cuda (a GPU) or cpu" if torch.cuda.is_available() else "cpu (a GPU is cuda; torch finds none)"
        raise DeviceError(f"{setting} = {device!r} cannot be used: {why}; set it to {here}") from error
    return torch.device(device)


@contextmanager
def threads(count: int | None) -> Generator[None]:
    """Set torch's number of threads within this block; None: no change.

    One thread for computations too small to share, more on free cores.
    """
    before = torch.get_num_threads()
    if count is None or before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def weights_from(seed: int) -> Generator[None]:
    """Seed the weights of networks made in this block, without effects on other random numbers of the process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def to_tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Move an array to the device; on the CPU they share memory if possible."""
    # torch warns of read-only memory (a message's frame, a collector's shared columns); a copy costs less than that.
    return sent(torch.from_numpy(array if array.flags.writeable else array.copy()), device)


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Move a tensor of the host to the device. A GPU takes it after its earlier work, while the host goes
    on: from pinned memory, which torch keeps until then. With other memory the host would wait for all that work."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def model_misfits(network: torch.nn.Module, state: Mapping[str, object], part: str) -> list[str]:
    """Reasons why `state[part]` cannot be loaded into the network; empty if it fits."""
    given = state.get(part)
    if not isinstance(given, Mapping):
        return [f"{part}: missing"]
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    return misfits(expected, cast("Mapping[str, object]", given), what=part)


def legal_in(batch: Mapping[str, np.ndarray], name: str, device: torch.device) -> torch.Tensor | None:
    """A batch's column `name` of legal actions, bool [..., n]; None without such a column: all are legal."""
    column = batch.get(name)
    return None if column is None else to_tensor(column, device)


def masked(numbers: torch.Tensor, legal: torch.Tensor | None) -> torch.Tensor:
    """Logits or values [..., n] with -inf for illegal actions, so an illegal action is never best and has neither
    probability nor gradient. `legal` bool [..., n] has at least one True per row; None: all are legal."""
    return numbers if legal is None else numbers.masked_fill(~legal, -torch.inf)


@contextmanager
def denormals_are_zero() -> Generator[None]:
    """Context in which this thread's float32 results below 1.2e-38 are 0. Environments outside keep exact arithmetic.

    Squared gradients of inactive units are halved many thousand times and end up there, where a processor needs thirty
    times as long per number: a learner lost a third of its speed in a quarter of an hour.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


EPSILON = 1e-3
"""Slope for large numbers, which makes the scaling invertible."""


def scaled(numbers: torch.Tensor) -> torch.Tensor:
    """h(x) = sign(x)(sqrt(|x| + 1) - 1) + EPSILON x, as in R2D2 and MuZero."""
    size = numbers.abs()
    root_less_one = size / ((size + 1.0).sqrt() + 1.0)  # sqrt(size + 1) - 1, which would lose the digits of small ones
    return numbers.sign() * root_less_one + EPSILON * numbers


def unscaled(numbers: torch.Tensor) -> torch.Tensor:
    """The inverse of `scaled`."""
    size = numbers.abs()
    inner = size + 1.0 + EPSILON
    root = 2.0 * inner / ((1.0 + 4.0 * EPSILON * inner).sqrt() + 1.0)  # (sqrt(1 + 4 E inner) - 1) / (2 E), likewise
    return numbers.sign() * (root * root - 1.0)
