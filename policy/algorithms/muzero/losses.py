"""The model unrolled over a batch, and how far it is from its targets."""

# torch's annotations are partial: pyright knows neither what these calls take nor what they return.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.networks import Consistency, MuZeroNetwork
from remuda.policy.algorithms.muzero.scaling import Support

HIDDEN_GRADIENT = 0.5
"""What a latent state's gradient is multiplied with where it goes into the dynamics (MuZero, appendix G)."""

ROUNDED = 64
"""Consistency in bfloat16 is computed for a multiple of so many positions, some twice: torch's processor library keeps
a kernel for each size of such products, and compiling thousands of them would take seconds and gigabytes. Positions
that are computed twice count twice in the moments of the batch, and once in the loss."""


@dataclass(frozen=True)
class Lesson:
    """A batch of B rows, ready to learn from: tensors over its P positions, those of position 0 first, as Positions
    lays them out."""

    counts: tuple[int, ...]
    """Rows that have position 0, 1 … K."""
    observation: torch.Tensor
    """Encoded, of position 0: [B, …]."""
    action: torch.Tensor
    """int64 [P]: what leads to the next position."""
    policy: torch.Tensor
    """float32 [P, actions]: what the search preferred; 0 where it was not asked."""
    value: torch.Tensor
    """float32 [P]: n-step returns."""
    reward: torch.Tensor
    """float32 [P - B]: what the step to each position after 0 brought."""
    acted: torch.Tensor
    """float32 [P]: 1 where there is a policy to learn, else 0."""
    valued: torch.Tensor
    """float32 [P]: 1 where there is a value to learn, else 0."""
    weights: torch.Tensor
    """float32 [P]: importance weights."""
    compared: torch.Tensor
    """int64 [C]: which of the positions after 0 have an observation."""
    seen: torch.Tensor
    """Encoded, of these: [C, …]."""


class Losses(NamedTuple):
    """Scalars, each a sum over the positions of a row and a mean over rows; and what was predicted on the way."""

    weighted: torch.Tensor
    """What an update descends: the total, by importance weights."""
    total: torch.Tensor
    """The parts below by their coefficients, less the entropy by its."""
    policy: torch.Tensor
    value: torch.Tensor
    reward: torch.Tensor
    consistency: torch.Tensor
    """Minus the cosine."""
    entropy: torch.Tensor
    """Of the policy, on average, in nats."""
    values: torch.Tensor
    """Logits [P, atoms]."""
    rewards: torch.Tensor
    """Logits [P - B, atoms]."""


def losses(
    network: MuZeroNetwork,
    support: Support,
    config: MuZeroConfig,
    lesson: Lesson,
    *,
    hidden_gradient: float = HIDDEN_GRADIENT,
) -> Losses:
    """Unroll the model over a lesson, and compare it with the targets there are (MuZero, equation 1 and appendix G)."""
    rows, unrolled_steps = lesson.counts[0], len(lesson.counts) - 1
    latent = torch.cat(unrolled(network, lesson, hidden_gradient))
    share = torch.full_like(lesson.value, 1.0 / (rows * unrolled_steps))
    share[:rows] = 1.0 / rows  # appendix G: position 0 counts as much as all others together

    said = network.predict(latent)
    log_policy = said.policy.log_softmax(1)
    policy = -(lesson.policy * log_policy).sum(1) * lesson.acted
    entropy = -(log_policy.exp() * log_policy).sum(1) * lesson.acted
    value = support.cross_entropy(said.value, lesson.value) * lesson.valued
    rewards = network.rewards(latent[rows:])
    reward = support.cross_entropy(rewards, lesson.reward)

    parts = [
        (config.policy_coefficient, policy, share, lesson.weights),
        (-config.entropy_coefficient, entropy, share, lesson.weights),
        (config.value_coefficient, value, share, lesson.weights),
        (config.reward_coefficient, reward, share[rows:], lesson.weights[rows:]),
    ]
    if network.consistency is not None and len(lesson.compared):
        imagined, seen = latent[rows:][lesson.compared], _represented(network, lesson.seen)
        cosine = consistency(network.consistency, imagined, seen, halved=config.precision == "bfloat16")
        of_compared = share[rows:][lesson.compared], lesson.weights[rows:][lesson.compared]
        parts.append((config.consistency_coefficient, -cosine, *of_compared))

    sums = [part @ shares for _, part, shares, _ in parts]
    weighted = [coefficient * (part @ (shares * weights)) for coefficient, part, shares, weights in parts]
    total = [coefficient * each.detach() for (coefficient, *_), each in zip(parts, sums, strict=True)]
    return Losses(
        weighted=torch.stack(weighted).sum(),
        total=torch.stack(total).sum(),
        policy=sums[0].detach(),
        value=sums[2].detach(),
        reward=sums[3].detach(),
        consistency=sums[4].detach() if len(sums) > 4 else torch.zeros_like(sums[0]),
        entropy=(entropy.sum() / lesson.acted.sum()).detach(),
        values=said.value.detach(),
        rewards=rewards.detach(),
    )


def consistency(heads: Consistency, imagined: torch.Tensor, seen: torch.Tensor, *, halved: bool) -> torch.Tensor:
    """Cosines [C] of what was imagined and seen, [C, latent] each. In bfloat16, if `halved`."""
    if not halved:
        cosine: torch.Tensor = heads(imagined, seen)
        return cosine
    compared = len(imagined)
    filled = torch.arange(-(-compared // ROUNDED) * ROUNDED, device=imagined.device) % compared
    with torch.autocast(imagined.device.type, torch.bfloat16):
        of_all: torch.Tensor = heads(imagined[filled], seen[filled])
    return of_all[:compared]


def unrolled(network: MuZeroNetwork, lesson: Lesson, hidden_gradient: float) -> list[torch.Tensor]:
    """Latent states of position 0, 1 … K, [rows that have it, latent] each, all imagined but the first."""
    latent = [network.represent(lesson.observation)]
    start = 0
    for rows, following in zip(lesson.counts[:-1], lesson.counts[1:], strict=True):
        if not following:
            break
        before = latent[-1][:following]
        slowed = before * hidden_gradient + before.detach() * (1.0 - hidden_gradient)  # the same numbers
        latent.append(network.imagine(slowed, lesson.action[start : start + following]))
        start += rows
    return latent


@torch.no_grad()
def _represented(network: MuZeroNetwork, observations: torch.Tensor) -> torch.Tensor:
    """Latent states of what was seen. They are targets: no gradient goes to them."""
    return network.represent(observations)
