"""Optimizers on a flat vector: torch's numbers, hand calculations, and a state that continues exactly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remuda.config.environment import EnvConfig
from remuda.config.learning import LearnerConfig, RmspropSettings
from remuda.config.schema import ExperimentConfig
from remuda.policy.networks.flat_parameters import FlatParameters, FlatPart
from remuda.policy.networks.optimizers import Optimizer, Rmsprop, make_optimizer
from remuda.policy.networks.tensors import denormals_are_zero
from remuda.tests.patience import HANG_S

MINE = """
import torch

class Loose(torch.optim.SGD):
    '''Puts new tensors in place of the parameter's.'''

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data, parameter.grad = parameter.data.clone(), None

class Rows(torch.optim.Optimizer):
    '''As Muon: another step for matrices than for biases, and none for what is called frozen.'''

    def __init__(self, parameters, lr, frozen):
        super().__init__([(name, one) for name, one in parameters if name != frozen], {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                one -= group["lr"] * (one.grad / one.grad.norm(dim=1, keepdim=True) if one.ndim == 2 else one.grad)

def by_layer(parameters, lr):
    '''A tenth of the rate for biases.'''
    [(_, weight), (_, bias)] = parameters
    return torch.optim.SGD([{"params": [weight]}, {"params": [bias], "lr": lr / 10}], lr=lr)

class Counts:
    '''No class of torch's: a sign descent that counts its steps.'''

    def __init__(self, parameters, lr, power=1):
        self.param_groups = [{"params": [one for _, one in parameters], "lr": lr, "steps": 0, "power": power}]

    @torch.no_grad()
    def step(self):
        [group] = self.param_groups
        group["steps"] += 1
        for parameter in group["params"]:
            parameter -= group["lr"] / group["steps"] ** group["power"] * parameter.grad.sign()

    def state_dict(self):
        return {"groups": [{k: v for k, v in group.items() if k != "params"} for group in self.param_groups]}

    def load_state_dict(self, state):
        for group, saved in zip(self.param_groups, state["groups"], strict=True):
            group.update(saved)

def refuses(parameters, lr):
    raise RuntimeError("not today")

def lacks(parameters, lr):
    return 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def gradients(count: int, size: int = 100) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(size, generator=generator) * 10.0 ** (step % 5 - 2) for step in range(count)]


def made(
    optimizer: str, settings: dict[str, Any], part: FlatPart, *, rate: float = 3e-3, folder: Path | None = None
) -> Optimizer:
    learner = LearnerConfig(learning_rate=rate or 1.0, optimizer=optimizer, optimizer_settings=settings)
    source_dir = None if folder is None else str(folder)
    config = ExperimentConfig(name="a", env=EnvConfig(id="x"), learner=learner, source_dir=source_dir)
    return make_optimizer(config, part, learning_rate=rate)


def parameters(size: int = 100) -> FlatPart:
    """A row of weights and a bias, with `size` numbers together."""
    part = FlatParameters(torch.nn.Linear(size - 1, 1)).part("")
    part.vector.copy_(torch.linspace(-1, 1, size))
    return part


def run(part: FlatPart, optimizer: Optimizer, steps: list[torch.Tensor]) -> None:
    for gradient in steps:
        part.gradient.copy_(gradient)
        optimizer.step()


def test_two_steps_of_rmsprop_with_tensorflows_epsilon_by_hand() -> None:
    """IMPALA's: decay 0.99, epsilon 0.1, no momentum."""
    vector, gradient = torch.tensor([1.0, -2.0]), torch.tensor([0.5, -4.0])
    optimizer = Rmsprop(vector, gradient, RmspropSettings(eps=0.1, eps_inside_root=True), learning_rate=0.1)
    expected, square = np.array([1.0, -2.0]), np.zeros(2)
    for given in ([0.5, -4.0], [1.0, 3.0]):
        gradient.copy_(torch.tensor(given))
        optimizer.step()
        square = 0.99 * square + 0.01 * np.square(given)
        expected -= 0.1 * np.array(given) / np.sqrt(square + 0.1)
    torch.testing.assert_close(vector, torch.tensor(expected, dtype=torch.float32))


BUILT_IN: list[tuple[str, dict[str, Any]]] = [
    ("adam", {}),
    ("adam", {"betas": [0.5, 0.9], "eps": 1e-3, "weight_decay": 0.1}),
    ("adamw", {}),
    ("adamw", {"weight_decay": 0.3}),
    ("rmsprop", {}),
    ("rmsprop", {"alpha": 0.9, "eps": 1e-2, "weight_decay": 0.1}),
    ("rmsprop", {"momentum": 0.9}),
    ("rmsprop", {"momentum": 0.5, "centered": True, "weight_decay": 0.1}),
]
TORCHS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}


@pytest.mark.parametrize(("optimizer", "settings"), BUILT_IN)
def test_each_follows_torchs_own_also_with_another_learning_rate(optimizer: str, settings: dict[str, Any]) -> None:
    part = parameters()
    theirs = torch.nn.Parameter(part.vector.clone())
    reference, ours = TORCHS[optimizer]([theirs], lr=3e-3, **settings), made(optimizer, settings, part)
    for number, gradient in enumerate(gradients(20)):
        if number == 10:
            ours.learning_rate = reference.param_groups[0]["lr"] = 1e-2
        run(part, ours, [gradient])
        theirs.grad = gradient.clone()
        reference.step()
    torch.testing.assert_close(part.vector, theirs.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "settings"), [*BUILT_IN, ("torch.optim:NAdam", {}), ("mine:Loose", {"momentum": 0.9})]
)
def test_a_loaded_state_continues_to_the_last_bit(optimizer: str, settings: dict[str, Any], mine: Path) -> None:
    whole = parameters()
    run(whole, made(optimizer, settings, whole, folder=mine), gradients(20))
    first = parameters()
    before = made(optimizer, settings, first, folder=mine)
    run(first, before, gradients(20)[:12])
    second = parameters()
    second.vector.copy_(first.vector)
    after = made(optimizer, settings, second, folder=mine)
    assert after.misfits(before.state()) == []
    after.load_state(before.state())
    run(second, after, gradients(20)[12:])
    assert torch.equal(second.vector, whole.vector)
    run(first, before, gradients(20)[12:])
    assert torch.equal(first.vector, whole.vector), "loading a state shares nothing with whom it is of"


@pytest.mark.parametrize(("optimizer", "settings"), [("torch.optim:AdamW", {"weight_decay": 0.3}), ("mine:Counts", {})])
def test_a_class_of_the_user_moves_the_vector(optimizer: str, settings: dict[str, Any], mine: Path) -> None:
    part = parameters()
    ours = made(optimizer, settings, part, folder=mine)
    run(part, ours, gradients(10))
    ours.learning_rate = 1e-2
    run(part, ours, gradients(20)[10:])
    expected = parameters()
    if optimizer == "torch.optim:AdamW":
        same = made("adamw", settings, expected)
        run(expected, same, gradients(10))
        same.learning_rate = 1e-2
        run(expected, same, gradients(20)[10:])
    else:
        for number, gradient in enumerate(gradients(20)):
            expected.vector.sub_((3e-3 if number < 10 else 1e-2) / (number + 1) * gradient.sign())
    torch.testing.assert_close(part.vector, expected.vector, rtol=1e-5, atol=1e-6)


def test_a_class_of_the_user_gets_the_parameters_of_its_part_by_name_and_in_their_shape(mine: Path) -> None:
    """A vector of all weights would close the setting to optimizers of matrices, and to rates by layer."""
    network = torch.nn.ModuleDict({"other": torch.nn.Linear(2, 2), "body": torch.nn.Linear(2, 2)})
    flat = FlatParameters(network)
    before, part = flat.vector.clone(), flat.part("body.")
    optimizer = made("mine:Rows", {"frozen": "body.bias"}, part, rate=0.1, folder=mine)
    run(part, optimizer, [torch.tensor([3.0, 4.0, 0.0, 2.0, 9.0, 9.0])])
    moved = torch.tensor([*[0.0] * 6, 0.06, 0.08, 0.0, 0.1, 0.0, 0.0])
    torch.testing.assert_close(before - flat.vector, moved)


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
        ({"step": 1, "exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3), "more": 1}, "optimizer: unexpected more"),
        (
            {"name": "rmsprop", "step": 1, "square_avg": torch.zeros(3)},
            "optimizer: the state is of rmsprop, and learner.optimizer is adam: set that to rmsprop, or take the "
            "weights alone for a new run (learner.initialize_from)",
        ),
    ],
)
def test_a_state_that_does_not_fit_says_why(state: object, problem: str) -> None:
    assert made("adam", {}, parameters(3)).misfits(state) == [problem]


@pytest.mark.parametrize(
    ("optimizer", "settings", "problem"),
    [
        ("adamw", {}, "optimizer: the state is of adam, and learner.optimizer is adamw"),
        ("mine:Counts", {}, "optimizer: the state is of adam, and learner.optimizer is mine:Counts"),
    ],
)
def test_a_state_without_a_name_is_adams(optimizer: str, settings: dict[str, Any], problem: str, mine: Path) -> None:
    """As in checkpoints written before other optimizers existed."""
    state = {"step": 1, "exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(3)}
    assert made("adam", {}, parameters(3)).misfits(state) == []
    [told] = made(optimizer, settings, parameters(3), folder=mine).misfits(state)
    assert told.startswith(problem)


def test_torchs_compiler_is_not_imported() -> None:
    code = (
        "import sys, torch; from remuda.config.learning import *; "
        "from remuda.policy.networks.optimizers import Adam; "
        "from remuda.policy.networks.optimizers import Rmsprop; "
        "Adam(torch.ones(3), torch.ones(3), AdamwSettings(), learning_rate=0.1).step(); "
        "Rmsprop(torch.ones(3), torch.ones(3), RmspropSettings(), learning_rate=0.1).step(); "
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.strip() == "False"


# --- denormal numbers
def test_results_that_small_are_zero_inside_and_exact_outside() -> None:
    tiny = torch.full((64,), 1e-20)
    with denormals_are_zero():
        inside = (tiny * 1e-19).clone()
    outside = tiny * 1e-19
    assert (inside == 0).all()
    assert (outside != 0).all()
    assert np.float32(1e-20) * np.float32(1e-19) != 0


def test_settings_and_learning_rate_stay_those_of_the_config_and_counts_go_on(mine: Path) -> None:
    before, part = parameters(), parameters()
    saved = made("mine:Counts", {"power": 2}, before, folder=mine)
    run(before, saved, gradients(4))
    loaded = made("mine:Counts", {}, part, rate=0.5, folder=mine)
    loaded.load_state(saved.state())
    part.vector.zero_()
    run(part, loaded, [torch.ones(100)])
    assert torch.equal(part.vector, torch.full((100,), -0.5 / 5)), "step 5, at 0.5, power 1"


def test_rates_by_layer_keep_their_share_of_the_rate(mine: Path) -> None:
    part, again, late = parameters(3), parameters(3), parameters(3)
    optimizer = made("mine:by_layer", {}, part, rate=1.0, folder=mine)
    optimizer.learning_rate = 0.5
    warm = made("mine:by_layer", {}, late, rate=0.0, folder=mine)
    warm.learning_rate = 0.5
    resumed = made("mine:by_layer", {}, again, rate=0.5, folder=mine)
    resumed.load_state(optimizer.state())
    for each, moved in ((optimizer, part), (resumed, again), (warm, late)):
        before = moved.vector.clone()
        run(moved, each, [torch.ones(3)])
        torch.testing.assert_close(before - moved.vector, torch.tensor([0.5, 0.5, 0.05]))
