"""Recurrent networks: the same numbers step by step in plain arrays, unrolled in torch, and in torch's own layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from remuda.policy.acting.recurrent import Core as PlainCore
from remuda.policy.networks.layouts import CoreKind, RecurrentLayout
from remuda.policy.networks.recurrent_networks import Core

KINDS: tuple[CoreKind, ...] = ("lstm", "gru")


def layout(kind: CoreKind, units: int = 5, features: int = 3) -> RecurrentLayout:
    return RecurrentLayout(features, (4,), "relu", kind, units)


def core(kind: CoreKind, seed: int = 0) -> Core:
    torch.manual_seed(seed)
    made = Core(layout(kind))
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.7)
    return made


def sequences(seed: int, n: int, steps: int, kind: CoreKind) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    encoded = torch.randn(n, steps, 4, generator=generator)
    return encoded, torch.randn(n, layout(kind).state_size, generator=generator) * 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_unrolled_it_is_torchs_own_layer(kind: CoreKind) -> None:
    ours = core(kind)
    theirs: Any = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](4, 5, batch_first=True)
    theirs.load_state_dict({f"{name}_l0": tensor for name, tensor in ours.state_dict().items()})
    encoded, state = sequences(1, 3, 7, kind)
    begins = torch.zeros(3, 7, dtype=torch.bool)
    outputs, after = ours.unroll(encoded, state, begins)
    before = tuple(part[None].contiguous() for part in state.chunk(2, 1)) if kind == "lstm" else state[None]
    expected, last = theirs(encoded, before)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(after, torch.cat([part[0] for part in last], 1) if kind == "lstm" else last[0])


@pytest.mark.parametrize("kind", KINDS)
@given(n=st.integers(1, 4), steps=st.integers(1, 9), cut=st.integers(0, 9), seed=st.integers(0, 99))
def test_arrays_steps_and_unrolled_torch_agree(kind: CoreKind, n: int, steps: int, cut: int, seed: int) -> None:
    """With episodes that begin anywhere, and a sequence cut anywhere: states continue from chunk to chunk."""
    ours = core(kind, seed)
    encoded, state = sequences(seed, n, steps, kind)
    begins = torch.rand(n, steps, generator=torch.Generator().manual_seed(seed + 1)) < 0.3
    plain = PlainCore({f"core.{name}": tensor.numpy() for name, tensor in ours.state_dict().items()}, layout(kind))
    with torch.no_grad():
        outputs, after = ours.unroll(encoded, state, begins)
        cut = min(cut, steps)
        first, middle = ours.unroll(encoded[:, :cut], state, begins[:, :cut]) if cut else (outputs[:, :0], state)
        rest, end = ours.unroll(encoded[:, cut:], middle, begins[:, cut:]) if cut < steps else (outputs[:, :0], middle)
        torch.testing.assert_close(torch.cat((first, rest), 1), outputs)
        torch.testing.assert_close(end, after)
        carried, stepped = state.numpy().copy(), state.clone()
        for step in range(steps):
            carried[begins[:, step].numpy()] = 0.0
            got = plain.step(encoded[:, step].numpy(), carried)
            np.testing.assert_allclose(got, outputs[:, step].numpy(), atol=2e-6)
            output, stepped = ours(encoded[:, step], stepped * ~begins[:, step, None])
            torch.testing.assert_close(output, outputs[:, step])
        np.testing.assert_allclose(carried, after.numpy(), atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_that_begins_inside_a_sequence_knows_nothing_of_the_one_before(kind: CoreKind) -> None:
    ours = core(kind)
    encoded, state = sequences(2, 2, 6, kind)
    encoded.requires_grad_(True)
    begins = torch.zeros(2, 6, dtype=torch.bool)
    begins[0, 3] = True
    outputs, after = ours.unroll(encoded, state, begins)
    alone, end = ours.unroll(encoded[:1, 3:], torch.zeros(1, state.shape[1]), begins[1:, 3:])
    torch.testing.assert_close(outputs[0, 3:], alone[0])
    torch.testing.assert_close(after[0], end[0])
    outputs[:, 3:].sum().backward()  # type: ignore[no-untyped-call]
    assert encoded.grad is not None
    assert not encoded.grad[0, :3].any(), "no gradient passes the beginning of an episode"
    assert encoded.grad[1, :3].any()
