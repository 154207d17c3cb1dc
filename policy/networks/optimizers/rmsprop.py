"""RMSProp on one flat vector of parameters (Tieleman & Hinton 2012): torch's rule, and TensorFlow's epsilon."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import torch

from remuda.config.optimizers import RmspropSettings
from remuda.policy.networks.lasting_memory import LastingMemory
from remuda.policy.networks.optimizers.base import VectorOptimizer

_SQUARE, _MEAN, _MOMENTUM = "square_avg", "grad_avg", "momentum_buffer"


class Rmsprop(VectorOptimizer):
    """Divides the gradient by the root of its running mean square."""

    def __init__(
        self, vector: torch.Tensor, gradient: torch.Tensor, settings: RmspropSettings, *, learning_rate: float
    ) -> None:
        moments = [_SQUARE, *([_MEAN] if settings.centered else []), *([_MOMENTUM] if settings.momentum else [])]
        super().__init__("rmsprop", vector, gradient, *moments, learning_rate=learning_rate)
        self._settings = settings
        memory = LastingMemory()
        self._root, self._decayed = (memory.empty(vector.shape, like=vector) for _ in range(2))

    def step(self) -> None:
        """See Optimizer."""
        self._steps += 1
        settings, gradient = self._settings, self._gradient
        if settings.weight_decay:
            gradient = torch.add(gradient, self._vector, alpha=settings.weight_decay, out=self._decayed)
        root = self._root_of(gradient)
        if not settings.momentum:
            self._vector.addcdiv_(gradient, root, value=-self.learning_rate)
            return
        momentum = self._moments[_MOMENTUM]
        momentum.mul_(settings.momentum).addcdiv_(gradient, root)
        self._vector.add_(momentum, alpha=-self.learning_rate)

    def _root_of(self, gradient: torch.Tensor) -> torch.Tensor:
        """Take a gradient into the running means; returns the root that divides it, epsilon included."""
        settings, square = self._settings, self._moments[_SQUARE]
        square.mul_(settings.alpha).addcmul_(gradient, gradient, value=1 - settings.alpha)
        variance = square
        if settings.centered:
            mean = self._moments[_MEAN].lerp_(gradient, 1 - settings.alpha)
            variance = torch.addcmul(square, mean, mean, value=-1, out=self._root)
        if settings.eps_inside_root:
            return torch.add(variance, settings.eps, out=self._root).sqrt_()
        return torch.sqrt(variance, out=self._root).add_(settings.eps)
