"""In which precision the large products of an update are computed: float32, or bfloat16 where that is faster."""

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
"""Of a matrix product, rows x inputs x outputs: up to this size (64 x 128 x 128) bfloat16 is slower, since it takes
time beside the product: for copies of its operands on a GPU, for oneDNN's own start on a CPU."""


class _Multiplying(Protocol):
    fp32_precision: str


_ONEDNN = cast("_Multiplying", getattr(torch.backends.mkldnn, "matmul"))  # noqa: B009  (torch's annotations miss it)
"""How oneDNN multiplies matrices of float32: "bf16" allows it to round them."""


class Lowering(Enum):
    """How a device multiplies matrices of float32 in bfloat16. All add up in float32."""

    READ = "read"
    """oneDNN rounds operands as it reads them, which takes half as long as copies of them. The product is float32."""
    COPIED = "copied"
    """Operands are copied to bfloat16; the product is rounded to it."""
    ROUNDED = "rounded"
    """Operands are rounded, and multiplied as float32: no faster, but close to what others compute. The product is
    float32."""


def lowering(device: torch.device) -> Lowering:
    """How this device does it."""
    if device.type != "cpu":
        return Lowering.COPIED
    if onednn_rounds():
        return Lowering.READ
    return Lowering.ROUNDED if hardware(device) is Hardware.NOTHING else Lowering.COPIED


@functools.cache
def onednn_rounds() -> bool:
    """Whether oneDNN rounds operands on this processor. It is tried, since without AMX it multiplies in float32
    whatever it was told, also where it says that it knows bfloat16."""
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
    """Within it products of float32 matrices on a CPU read their operands as bfloat16, if it `rounds`, and add up in
    float32; each operand is to go through the function that it gives."""
    if not rounds:
        yield _as_it_is
    elif not onednn_rounds():
        yield _rounded
    else:
        with _allowed_to_round():
            yield _as_it_is


def _as_it_is(operand: torch.Tensor) -> torch.Tensor:
    return operand


def _rounded(operand: torch.Tensor) -> torch.Tensor:
    return operand.bfloat16().float()


class Hardware(IntEnum):
    """What a device has for products in bfloat16."""

    NOTHING = 0
    """They are emulated, and slower: convolutions several times."""
    INSTRUCTIONS = 1
    """They may be faster or slower than those in float32: that has to be timed."""
    FASTER = 2
    """They are about twice as fast or more, where they are large enough."""


def hardware(device: torch.device) -> Hardware:
    """What this device has; a kind of device that is not known counts as one that has nothing."""
    if device.type == "cuda":
        return Hardware.FASTER if torch.cuda.is_bf16_supported(including_emulation=False) else Hardware.NOTHING
    if device.type != "cpu":
        return Hardware.NOTHING
    has = torch.cpu.get_capabilities()
    if has.get("amx_bf16") or has.get("avx512_bf16"):
        return Hardware.FASTER
    return Hardware.INSTRUCTIONS if has.get("bf16") else Hardware.NOTHING


class Lowers:
    """Something whose products may be computed in bfloat16 while it learns."""

    products: Products | None = None
    """Decides which; None: none."""


class Products:
    """How the products of one algorithm's networks are computed while they learn. Its networks share it.

    Weights, gradients, the optimizer, losses, sums over rows, the first layer of a perceptron (which reads observations
    that may have large offsets) and the last layer of every network stay float32; a product in bfloat16 adds up in
    float32.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.precision: Precision = "float32"
        """What products of more than LEAST_MULTIPLICATIONS, and convolutions, are computed in. May be changed between
        updates."""
        self.decided: Precision | None = None
        """What `learner.precision: auto` has decided; checkpoints keep it. None: nothing yet."""
        self.lowered = False
        """Whether any product was computed in bfloat16 so far."""

    @functools.cached_property
    def lowering(self) -> Lowering:
        """How products are computed in bfloat16."""
        return lowering(self.device)

    def lowers(self, rows: int, inputs: int, outputs: int) -> bool:
        """Whether a product [rows, inputs] x [inputs, outputs] is to be computed in bfloat16."""
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
        """Likewise matrices [count, rows, inputs], transposed, by [count, rows, outputs].

        Where oneDNN rounds, one by one: of several that are transposed, or have gaps between them, it gets copies,
        which take longer than the product.
        """
        if self.lowering is not Lowering.READ or not self.lowers(left.shape[1], left.shape[2], right.shape[2]):
            return self.multiply(left.transpose(1, 2), right, out=out)
        with rounding(True) as read:
            for one, other, product in zip(read(left), read(right), out, strict=True):
                torch.mm(one.t(), other, out=product)
        return out

    def reach(self, network: nn.Module) -> Products:
        """Decide from now on how a network is computed, with everything in it that `Lowers`."""
        for module in network.modules():
            for part in (module, *vars(module).values()):
                if isinstance(part, Lowers):
                    part.products = self
        return self

    def of_modules(self) -> AbstractContextManager[object]:
        """A context in which torch's modules compute in this precision; those that end with an OutputLayer give float32
        all the same."""
        if self.precision != "bfloat16":
            return nullcontext()
        self.lowered = True
        return torch.autocast(self.device.type, torch.bfloat16)
