"""Precision of the large matrix products of an update: float32, or bfloat16 if faster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum, IntEnum
from typing import Protocol, cast

import torch
from torch import nn

from remuda.config.learning import Precision

LEAST_MULTIPLICATIONS = 1 << 20
"""Largest matrix product, rows x inputs x outputs, that stays float32 (64 x 128 x 128): bfloat16 has a fixed cost,
copies of the operands on a GPU and the start of oneDNN on a CPU."""


class _Multiplying(Protocol):
    fp32_precision: str


_ONEDNN = cast("_Multiplying", getattr(torch.backends.mkldnn, "matmul"))  # noqa: B009  (torch's annotations miss it)
"""oneDNN's setting for products of float32 matrices: "bf16" allows rounding."""


class Lowering(Enum):
    """Method of a device for float32 products in bfloat16. All methods accumulate in float32."""

    READ = "read"
    """oneDNN rounds operands while reading them, twice as fast as copies. The product is float32."""
    COPIED = "copied"
    """Operands are copied to bfloat16; the product is rounded to bfloat16."""
    ROUNDED = "rounded"
    """Operands are rounded, and multiplied as float32: not faster, but close to the other methods. The product is
    float32."""


def lowering(device: torch.device) -> Lowering:
    """Method of this device."""
    if device.type != "cpu":
        return Lowering.COPIED
    if onednn_rounds():
        return Lowering.READ
    return Lowering.ROUNDED if hardware(device) is Hardware.NOTHING else Lowering.COPIED


@functools.cache
def onednn_rounds() -> bool:
    """True if oneDNN rounds operands on this processor. Found by a test product, since without AMX it multiplies in
    float32 whatever the setting, even if it reports bfloat16."""
    rows, inputs, outputs = 128, 128, 128
    ones = torch.full((rows, inputs), 1.0 + 2.0**-12)  # in bfloat16 it is 1
    with _allowed_to_round():
        product = ones @ torch.ones(inputs, outputs)
    return bool((product == inputs).all())


@contextmanager
def _allowed_to_round() -> Generator[None]:
    former = _ONEDNN.fp32_precision
    _ONEDNN.fp32_precision = "bf16"
    try:
        yield
    finally:
        _ONEDNN.fp32_precision = "none"  # then it has torch's general value
        if _ONEDNN.fp32_precision != former:
            _ONEDNN.fp32_precision = former


@contextmanager
def rounding(rounds: bool) -> Generator[Callable[[torch.Tensor], torch.Tensor]]:
    """Context in which products of float32 matrices on a CPU read their operands as bfloat16, if `rounds`, and
    accumulate in float32. Pass each operand through the function that it yields."""
    if not rounds:
        yield _as_it_is
    elif not onednn_rounds():
        yield lambda operand: operand.bfloat16().float()
    else:
        with _allowed_to_round():
            yield _as_it_is


def _as_it_is(operand: torch.Tensor) -> torch.Tensor:
    return operand


class Hardware(IntEnum):
    """Support of a device for products in bfloat16."""

    NOTHING = 0
    """Emulated, and slower: convolutions several times."""
    INSTRUCTIONS = 1
    """Faster or slower than float32: must be timed."""
    FASTER = 2
    """About twice as fast or more, for large products."""


def hardware(device: torch.device) -> Hardware:
    """Support of this device; unknown devices count as NOTHING."""
    if device.type == "cuda":
        return Hardware.FASTER if torch.cuda.is_bf16_supported(including_emulation=False) else Hardware.NOTHING
    if device.type != "cpu":
        return Hardware.NOTHING
    has = torch.cpu.get_capabilities()
    if has.get("amx_bf16") or has.get("avx512_bf16"):
        return Hardware.FASTER
    return Hardware.INSTRUCTIONS if has.get("bf16") else Hardware.NOTHING


class Lowers:
    """Base of modules whose products may be computed in bfloat16 during learning."""

    products: Products | None = None
    """Precision of the products; None: float32."""


class Products:
    """Precision of the products in an algorithm's networks during learning, shared by its networks.

    Always float32: weights, gradients, the optimizer, losses, sums over rows, the first layer of a perceptron (which
    reads observations, possibly with large offsets) and the last layer of every network. Products in bfloat16
    accumulate in float32.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.precision: Precision = "float32"
        """Precision of convolutions and of products above LEAST_MULTIPLICATIONS. May change between updates."""
        self.decided: Precision | None = None
        """Decision of `learner.precision: auto`, kept in checkpoints; None: not yet decided."""
        self.lowered = False
        """True once a product was computed in bfloat16."""

    @functools.cached_property
    def lowering(self) -> Lowering:
        """Method of this device for products in bfloat16."""
        return lowering(self.device)

    def lowers(self, rows: int, inputs: int, outputs: int) -> bool:
        """True if a product [rows, inputs] x [inputs, outputs] is to be computed in bfloat16."""
        lower = self.precision == "bfloat16" and rows * inputs * outputs > LEAST_MULTIPLICATIONS
        self.lowered |= lower
        return lower

    def multiply(self, left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        """Multiply matrices [count, rows, inputs] by [count, inputs, outputs], in bfloat16 if that is called for; all
        are float32, and the product adds up in float32. `out` is overwritten."""
        if not self.lowers(left.shape[1], left.shape[2], right.shape[2]):
            return torch.bmm(left, right, out=out)
        if self.lowering is Lowering.COPIED:
            return out.copy_(torch.bmm(left.bfloat16(), right.bfloat16()))
        with rounding(True) as read:
            return torch.bmm(read(left), read(right), out=out)

    def multiply_transposed(self, left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        """Multiply transposed matrices [count, rows, inputs] by [count, rows, outputs], as `multiply` does.

        Where oneDNN rounds, one product at a time: for several transposed or strided matrices it makes copies, which
        take longer than the product.
        """
        if self.lowering is not Lowering.READ or not self.lowers(left.shape[1], left.shape[2], right.shape[2]):
            return self.multiply(left.transpose(1, 2), right, out=out)
        with rounding(True) as read:
            for one, other, product in zip(read(left), read(right), out, strict=True):
                torch.mm(one.t(), other, out=product)
        return out

    def reach(self, network: nn.Module) -> Products:
        """Set the precision of a network and of all parts derived from `Lowers`."""
        for module in network.modules():
            for part in (module, *vars(module).values()):
                if isinstance(part, Lowers):
                    part.products = self
        return self

    def of_modules(self) -> AbstractContextManager[object]:
        """Context in which torch's modules compute in this precision; an OutputLayer still gives float32."""
        if self.precision != "bfloat16":
            return nullcontext()
        self.lowered = True
        return torch.autocast(self.device.type, torch.bfloat16)
