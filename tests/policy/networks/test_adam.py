"""Adam on a flat vector: torch's numbers, a hand calculation, and a state that continues exactly."""

# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from remuda.policy.networks.adam import Adam
from remuda.tests.patience import HANG_S


def gradients(count: int, size: int = 100) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(size, generator=generator) * 10.0 ** (step % 5 - 2) for step in range(count)]


def run(vector: torch.Tensor, adam_gradient: torch.Tensor, adam: Adam, steps: list[torch.Tensor]) -> None:
    for gradient in steps:
        adam_gradient.copy_(gradient)
        adam.step()


def test_the_first_step_by_hand() -> None:
    vector, gradient = torch.tensor([1.0, -2.0]), torch.tensor([0.5, -4.0])
    Adam(vector, gradient, learning_rate=0.1, epsilon=0.0).step()
    # bias correction makes mean/sqrt(square) the gradient's sign at the first step
    torch.testing.assert_close(vector, torch.tensor([0.9, -1.9]))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_follows_torchs_own(weight_decay: float) -> None:
    ours, gradient = torch.linspace(-1, 1, 100), torch.zeros(100)
    theirs = torch.nn.Parameter(ours.clone())
    reference = torch.optim.Adam([theirs], lr=3e-3, weight_decay=weight_decay)
    adam = Adam(ours, gradient, learning_rate=3e-3, weight_decay=weight_decay)
    for step in gradients(300):
        run(ours, gradient, adam, [step])
        theirs.grad = step.clone()
        reference.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_a_loaded_state_continues_to_the_last_bit() -> None:
    whole, whole_gradient = torch.ones(100), torch.zeros(100)
    run(whole, whole_gradient, Adam(whole, whole_gradient, learning_rate=1e-2), gradients(20))
    first, first_gradient = torch.ones(100), torch.zeros(100)
    before = Adam(first, first_gradient, learning_rate=1e-2)
    run(first, first_gradient, before, gradients(20)[:12])
    second, second_gradient = first.clone(), torch.zeros(100)
    after = Adam(second, second_gradient, learning_rate=1e-2)
    assert after.misfits(before.state()) == []
    after.load_state(before.state())
    run(second, second_gradient, after, gradients(20)[12:])
    assert torch.equal(second, whole)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (None, "optimizer: missing"),
        ({"exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3)}, "optimizer: missing step"),
        ({"step": 1, "exp_avg": torch.zeros(3)}, "optimizer: missing exp_avg_sq"),
        (
            {"step": 1, "exp_avg": torch.zeros(4), "exp_avg_sq": torch.zeros(3)},
            "optimizer: exp_avg has shape (4,), needed is (3,)",
        ),
        (
            {"step": 1, "exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3), "more": 1},
            "optimizer: unexpected more",
        ),
    ],
)
def test_a_state_that_does_not_fit_says_why(state: object, problem: str) -> None:
    assert Adam(torch.zeros(3), torch.zeros(3), learning_rate=0.1).misfits(state) == [problem]


def test_torchs_compiler_is_not_imported() -> None:
    code = (
        "import sys, torch; from remuda.policy.networks.adam import Adam; "
        "Adam(torch.ones(3), torch.ones(3), learning_rate=0.1).step(); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.strip() == "False"
