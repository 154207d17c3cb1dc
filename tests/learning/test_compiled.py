"""Convolutions that torch compiles learn as others, and are traced as others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from remuda.tests.patience import HANG_S

COMPILED = """
import torch
from remuda.policy.networks.layouts import ImageLayout
from remuda.policy.networks.trunks import ConvolutionTrunk
from remuda.policy.spaces import ObservationSpec

layout = ImageLayout.of(ObservationSpec((4, 36, 40), "uint8", 0.0, 255.0), None)
plain, compiled = ConvolutionTrunk(layout), ConvolutionTrunk(layout)
compiled.load_state_dict(plain.state_dict())
compiled.compile_learning(backend="aot_eager")
seen = torch.randint(0, 256, (6, 4, 36, 40), dtype=torch.uint8)
for trunk in (plain, compiled):
    torch.autograd.backward(trunk(seen).square().mean())
for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
    torch.testing.assert_close(one.grad, other.grad)
traced = torch.jit.trace(compiled.eval(), seen[:2])
torch.testing.assert_close(traced(seen), plain.eval()(seen))
"""


@pytest.mark.learning
@pytest.mark.processes
def test_compiled_convolutions_learn_and_are_traced_as_others() -> None:
    """With a backend without machine code, which would take a minute; the backward pass is still compiled.
    In a process of its own, since torch's compiler leaves a thread behind."""
    done = subprocess.run([sys.executable, "-P", "-c", COMPILED], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
