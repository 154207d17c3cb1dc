"""Values and rewards as distributions: brought to a smaller scale, and split between two neighbouring whole numbers."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import torch

from remuda.policy.networks.rescaling import scaled, unscaled


class Support:
    """The whole numbers -size … size, each an atom of a distribution over scaled numbers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.atoms = 2 * size + 1
        self._numbers: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def neighbours(self, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Split numbers [n] between two atoms: the index of the lower, int64 [n], and the upper's share [n].

        Numbers are scaled first. Those beyond the support count as its end. `expectation` inverts it.
        """
        place = scaled(numbers).clamp(-self.size, self.size) + self.size
        lower = place.floor().clamp(max=2 * self.size - 1)
        return lower.long(), place - lower

    def cross_entropy(self, logits: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Of distributions by logits [n, atoms] against those of numbers [n]: [n], in nats."""
        lower, share = self.neighbours(numbers)
        both = torch.stack((lower, lower + 1), dim=1)
        lower_log, upper_log = logits.log_softmax(1).gather(1, both).unbind(1)
        return -torch.lerp(lower_log, upper_log, share)

    def expectation(self, logits: torch.Tensor) -> torch.Tensor:
        """The number [n] that distributions by logits [n, atoms] mean."""
        return self.mean(logits.softmax(1))

    def mean(self, distribution: torch.Tensor) -> torch.Tensor:
        """The number [n] that distributions [n, atoms] mean."""
        return unscaled(distribution @ self._atoms(distribution))

    def _atoms(self, like: torch.Tensor) -> torch.Tensor:
        """The atoms on the device and of the type of a tensor."""
        key = like.device, like.dtype
        if key not in self._numbers:
            self._numbers[key] = torch.arange(-self.size, self.size + 1, dtype=like.dtype, device=like.device)
        return self._numbers[key]
