"""Recurrent networks: an encoder per observation, a recurrent core, and a head."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remuda.policy.networks.layouts import GATES, RecurrentLayout
from remuda.policy.networks.tensors import to_tensor
from remuda.policy.networks.torch_networks import RunningMoments

Head = TypeVar("Head", bound=nn.Module)


class Encoder(nn.Module):
    """Layers before the core: normalisation, an encoder or convolutions (for images), hidden layers."""

    def __init__(self, layout: RecurrentLayout, features: int, trunk: nn.Module | None) -> None:
        """`trunk` gives `features` numbers per observation; None: the observation's own numbers."""
        super().__init__()
        self.observations = RunningMoments(layout.numbers) if layout.normalizes else None
        self.convolutions = trunk
        widths = (features, *layout.hidden)
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layer = nn.Linear(before, after)
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)
            normalises = [nn.LayerNorm(after)] if layout.layer_norm else []
            layers += [layer, *normalises, nn.Tanh() if layout.activation == "tanh" else nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def normalised(self, observations: torch.Tensor) -> torch.Tensor:
        """Normalise observations [n, features] to float32; float64 inputs stay float64 until the mean is subtracted.
        Images stay unchanged."""
        return observations if self.observations is None else self.observations.normalised(observations)

    def forward(self, normalised: torch.Tensor) -> torch.Tensor:
        """Encode normalised observations [n, …]: float32 [n, encoded]."""
        features = normalised if self.convolutions is None else self.convolutions(normalised)
        encoded: torch.Tensor = self.layers(features)
        return encoded


class Core(nn.Module):
    """A layer of LSTM or GRU cells, with the weights and the gate order of torch's cells."""

    def __init__(self, layout: RecurrentLayout) -> None:
        super().__init__()
        rows, units = GATES[layout.core] * layout.units, layout.units
        self._lstm, self.state_size = layout.core == "lstm", layout.state_size
        self.weight_ih = nn.Parameter(torch.empty(rows, layout.encoded))
        self.weight_hh = nn.Parameter(torch.empty(rows, units))
        self.bias_ih, self.bias_hh = nn.Parameter(torch.zeros(rows)), nn.Parameter(torch.zeros(rows))
        for weight in (self.weight_ih, self.weight_hh):
            nn.init.orthogonal_(weight)

    def forward(self, encoded: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute one step: from encoded observations [n, encoded] and states [n, state_size] to outputs [n, units] and
        the next states."""
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if self._lstm:
            output, cells = torch.lstm_cell(encoded, state.chunk(2, dim=1), *weights)
            return output, torch.cat((output, cells), dim=1)
        output = torch.gru_cell(encoded, state, *weights)
        return output, output

    def unroll(
        self, encoded: torch.Tensor, state: torch.Tensor, begins: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Step through the time of `encoded` [n, steps, encoded], from the state [n, state_size] on. `begins`, bool
        [n, steps], is True for the first observation of an episode, whose state is 0. Returns outputs [n, steps,
        units], and the states after the last step."""
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        steps, keeps = begins.shape[1], (~begins).to(encoded.dtype).unsqueeze(2)
        some = begins.any(0).tolist() if begins.is_cpu else [True] * steps  # a look would wait for another device
        output, cells = state.chunk(2, dim=1) if self._lstm else (state, state)
        outputs: list[torch.Tensor] = []
        for step, (seen, restarts) in enumerate(zip(encoded.unbind(1), some, strict=True)):
            if restarts:
                output, cells = output * keeps[:, step], cells * keeps[:, step]
            if self._lstm:
                output, cells = torch.lstm_cell(seen, (output, cells), *weights)
            else:
                output = torch.gru_cell(seen, output, *weights)
            outputs.append(output)
        after = torch.cat((output, cells), dim=1) if self._lstm else output
        return torch.stack(outputs, dim=1), after


@dataclass(frozen=True)
class Unrolled:
    """Observations of B segments in order, for a recurrent network."""

    observations: torch.Tensor
    """[B, T + 1, …]: normalised."""
    state: torch.Tensor
    """float32 [B, state_size]: state before the first observation of each segment."""
    begins: torch.Tensor
    """bool [B, T + 1]: an episode begins with this observation."""
    steps: torch.Tensor | None = None
    """int64 [n]: indices of the requested outputs among the B * (T + 1) observations; None: all."""

    def __len__(self) -> int:
        """Number of observations."""
        return self.begins.numel()

    def shares(
        self, valid: NDArray[np.bool_], count: int, rng: np.random.Generator
    ) -> Iterator[tuple[Unrolled, torch.Tensor]]:
        """Divide the segments at random into `count` shares. Yields each with the indices of its steps among all valid
        slots; leaves out shares without any. `valid` is bool [B, T]."""
        segments, slots = self.begins.shape
        segment, slot = np.nonzero(valid)
        for share in np.array_split(rng.permutation(segments), min(count, segments)):
            own = np.flatnonzero(np.isin(segment, share))
            if not len(own):  # nothing but resets
                continue
            order = np.empty(segments, np.int64)
            order[share] = np.arange(len(share))
            device = self.begins.device
            among = to_tensor(order[segment[own]] * slots + slot[own], device)
            chosen = to_tensor(share, device)
            part = Unrolled(self.observations[chosen], self.state[chosen], self.begins[chosen], among)
            yield part, to_tensor(own, device)


class RecurrentNetwork(nn.Module, Generic[Head]):
    """Encoder, core and head. The head is any network on numbers [n, units]."""

    def __init__(self, layout: RecurrentLayout, head: Head, features: int, trunk: nn.Module | None = None) -> None:
        """`features` and `trunk` are Encoder's."""
        super().__init__()
        self.encoder, self.core = Encoder(layout, features, trunk), Core(layout)
        self.head = head

    def acting(self) -> dict[str, nn.Module]:
        """See remuda.policy.networks.reading: `encoded`, the inputs of the core. The head has separate outputs."""
        encoder = self.encoder
        first = [part for part in (encoder.observations, encoder.convolutions) if part is not None]
        return {"encoded": nn.Sequential(*first, encoder.layers)}

    def unroll(
        self, normalised: torch.Tensor, state: torch.Tensor, begins: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Unroll n sequences: from normalised observations [n, steps, …] to inputs of the head, float32 [n, steps,
        units], and the states after the last step. `state` and `begins` are those of Core.unroll."""
        encoded = self.encoder(normalised.flatten(0, 1))
        return self.core.unroll(encoded.reshape(*normalised.shape[:2], -1), state, begins)

    def remembered(self, segments: Unrolled) -> torch.Tensor:
        """Inputs of the head for the requested observations: float32 [n, units]."""
        outputs, _ = self.unroll(segments.observations, segments.state, segments.begins)
        flat = outputs.flatten(0, 1)
        return flat if segments.steps is None else flat.index_select(0, segments.steps)
