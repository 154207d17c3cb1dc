"""Images: convolutions fit or are errors, are trained, and act as in training."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from remuda.config.algorithms.actor_critic import ImpalaConfig, PpoConfig
from remuda.config.algorithms.q_learning import DqnConfig
from remuda.environments.errors import UnsupportedSpaceError
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.algorithms.actor_critic.entries import ActorCriticPolicy
from remuda.policy.algorithms.dqn.entry import DqnPolicy
from remuda.policy.base import Algorithm, Arrays, Policy
from remuda.policy.networks.layouts import ATARI, SMALL, ImageLayout
from remuda.policy.networks.trunks import ConvolutionTrunk
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.patience import HANG_S
from remuda.tests.policy.algorithms.segments import batch as segments
from remuda.tests.policy.algorithms.segments import experiment
from remuda.tests.policy.cases import config, dqn

FRAMES = ObservationSpec((4, 36, 40), "uint8", 0.0, 255.0)
MINATAR = ObservationSpec((10, 10, 4), "bool", 0.0, 1.0)
ACTIONS = ActionSpec(3)

POLICIES = [
    DqnConfig(),
    DqnConfig(hidden=(16, 8), dueling=False),
    PpoConfig(epochs=2, minibatches=2),
    ImpalaConfig(hidden=(), convolution=((4, 3, 2), (6, 2, 1))),
    ImpalaConfig(hidden=(16, 8), shared_hidden=False),
]
policies = pytest.mark.parametrize("policy", POLICIES, ids=["dueling", "plain", "ppo", "impala", "apart"])
GREY = ObservationSpec((36, 40), "uint8", 0.0, 255.0)
COLOURS = ObservationSpec((2, 36, 40, 3), "uint8", 0.0, 255.0)
images = pytest.mark.parametrize(
    "observation", [FRAMES, MINATAR, GREY, COLOURS], ids=["frames", "minatar", "grey", "colours"]
)

AnyPolicy = DqnConfig | PpoConfig | ImpalaConfig


def algorithm_of(policy: AnyPolicy, observation: ObservationSpec) -> Algorithm:
    if isinstance(policy, DqnConfig):
        return dqn(policy, observation=observation, action=ACTIONS)
    return make_algorithm(experiment(policy), observation, ACTIONS, 0)


def acting(policy: AnyPolicy, algorithm: Algorithm) -> Policy:
    chosen = config(policy) if isinstance(policy, DqnConfig) else experiment(policy)
    acts = make_policy(chosen, algorithm.observation, ACTIONS)
    acts.load_state(algorithm.acting_state())
    return acts


def outputs(acts: Policy, seen: np.ndarray) -> np.ndarray:
    if isinstance(acts, DqnPolicy):
        return acts.q_values(seen)
    assert isinstance(acts, ActorCriticPolicy)
    return acts.outputs(seen)


def some(observation: ObservationSpec, rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2 if observation.dtype == "bool" else 256, (rows, *observation.shape)).astype(
        observation.dtype
    )


def transitions(observation: ObservationSpec, rows: int) -> Arrays:
    rng = np.random.default_rng(1)
    return {
        "obs": some(observation, rows),
        "next_obs": some(observation, rows, seed=2),
        "action": rng.integers(0, 3, rows),
        "reward": rng.normal(size=rows).astype(np.float32),
        "discount": np.full(rows, 0.9, np.float32),
        "weights": np.ones(rows, np.float32),
    }


def learned(policy: AnyPolicy, observation: ObservationSpec, updates: int = 2) -> Algorithm:
    algorithm, rng = algorithm_of(policy, observation), np.random.default_rng(0)
    for _ in range(updates):
        if isinstance(policy, DqnConfig):
            algorithm.learn(transitions(observation, 8))
            continue
        rows = segments(rng, 3, 4, action=ACTIONS)
        algorithm.learn({**rows, "obs": some(observation, 15).reshape(3, 5, *observation.shape)})
    return algorithm


# --- layouts


def test_atari_and_small_images_have_layers_of_their_own() -> None:
    layout = ImageLayout.of(ObservationSpec((4, 84, 84), "uint8", 0.0, 255.0), None)
    assert layout is not None
    assert layout.features == 64 * 7 * 7, "as in the paper"
    assert [(layer.filters, layer.kernel, layer.stride) for layer in layout.layers] == list(ATARI)
    small = ImageLayout.of(MINATAR, None)
    assert small is not None
    assert [(layer.filters, layer.kernel, layer.stride) for layer in small.layers] == list(SMALL)
    assert small.features == 16 * 8 * 8
    assert (layout.pixels.scale, small.pixels.scale) == (1 / 255, 1.0)


@pytest.mark.parametrize("side", [3, 10, 35, 36, 37, 64, 210])
def test_every_image_of_three_pixels_or_more_has_a_layout_that_the_network_agrees_with(side: int) -> None:
    for shape in ((1, side, side + 5), (side + 5, side, 3)):
        observation = ObservationSpec(shape, "uint8", 0.0, 255.0)
        layout = ImageLayout.of(observation, None)
        assert layout is not None
        trunk = ConvolutionTrunk(layout)
        assert trunk(torch.from_numpy(some(observation, 2))).shape == (2, layout.features)


@pytest.mark.parametrize(
    ("shape", "layers", "found"),
    [((4, 2, 9), None, "3x3 pixels finds 2x9"), ((3, 9, 9), ((4, 5, 2), (4, 4, 1)), "4x4 pixels finds 3x3")],
)
def test_too_small_an_image_is_refused_in_one_line(
    shape: tuple[int, ...], layers: tuple[tuple[int, int, int], ...] | None, found: str
) -> None:
    with pytest.raises(UnsupportedSpaceError, match=found) as caught:
        ImageLayout.of(ObservationSpec(shape, "uint8"), layers)
    assert "\n" not in str(caught.value)
    assert "policy.convolution" in str(caught.value)


@pytest.mark.parametrize("shape", [(4,), (2, 2, 4, 84, 84)])
def test_convolutions_of_what_is_no_image_are_refused(shape: tuple[int, ...]) -> None:
    observation = ObservationSpec(shape, "uint8")
    assert ImageLayout.of(observation, None) is None
    with pytest.raises(UnsupportedSpaceError, match=r"policy\.convolution reads images"):
        make_policy(config(DqnConfig(convolution=SMALL)), observation, ACTIONS)


def test_the_order_of_channels_makes_no_difference() -> None:
    first = ImageLayout.of(ObservationSpec((3, 20, 24), "uint8", 0.0, 255.0), SMALL)
    last = ImageLayout.of(ObservationSpec((20, 24, 3), "uint8", 0.0, 255.0), SMALL)
    assert first is not None
    assert last is not None
    one, other = ConvolutionTrunk(first), ConvolutionTrunk(last)
    other.load_state_dict(one.state_dict())
    seen = torch.from_numpy(some(ObservationSpec((3, 20, 24), "uint8"), 5))
    torch.testing.assert_close(one(seen), other(seen.permute(0, 2, 3, 1).contiguous()))


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


def test_compiled_convolutions_learn_and_are_traced_as_others() -> None:
    """With a backend without machine code, which would take a minute; the backward pass is still compiled.
    In a process of its own, since torch's compiler leaves a thread behind."""
    done = subprocess.run([sys.executable, "-P", "-c", COMPILED], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr


def test_many_images_are_read_in_parts_with_the_same_outcome() -> None:
    layout = ImageLayout.of(MINATAR, None)
    assert layout is not None
    trunk, seen = ConvolutionTrunk(layout), torch.from_numpy(some(MINATAR, 300))
    with torch.no_grad():
        torch.testing.assert_close(trunk(seen), torch.cat([trunk(seen[:7]), trunk(seen[7:50]), trunk(seen[50:])]))
    features = trunk(seen)
    assert features.shape == (300, layout.features)
    torch.autograd.backward(features.square().mean())
    whole = [parameter.grad.clone() for parameter in trunk.parameters() if parameter.grad is not None]
    trunk.zero_grad()
    for part in torch.split(seen, 50):
        torch.autograd.backward(trunk(part).square().sum() / features.numel())
    parts = [parameter.grad for parameter in trunk.parameters()]
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


@images
@pytest.mark.parametrize("learns", [False, True], ids=["values", "gradients"])
def test_folded_images_are_read_as_the_images_themselves(observation: ObservationSpec, *, learns: bool) -> None:
    layout = ImageLayout.of(observation, None)
    assert layout is not None
    trunk, seen = ConvolutionTrunk(layout), torch.from_numpy(observation.encode(some(observation, 9)))
    with torch.set_grad_enabled(learns):
        torch.testing.assert_close(trunk(trunk.folded(seen)), trunk(seen))


def test_pixels_are_scaled_to_at_most_one() -> None:
    layout = ImageLayout.of(ObservationSpec((1, 3, 3), "uint8", 0.0, 255.0), ((1, 3, 1),))
    assert layout is not None
    trunk = ConvolutionTrunk(layout)
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.fill_(0.5)
        white = trunk(torch.full((1, 1, 3, 3), 255, dtype=torch.uint8))
    torch.testing.assert_close(white, torch.tensor([[9 * 0.5 + 0.5]]))


# --- learning and acting


@policies
@images
def test_every_parameter_is_learned(policy: AnyPolicy, observation: ObservationSpec) -> None:
    before, after = algorithm_of(policy, observation).acting_state(), learned(policy, observation).acting_state()
    assert before.keys() == after.keys()
    still = [name for name in before if np.array_equal(before[name], after[name]) and not name.startswith("returns")]
    assert not still


def test_a_dqn_learns_which_image_is_worth_what() -> None:
    algorithm = dqn(DqnConfig(hidden=(32,)), observation=MINATAR, action=ACTIONS)
    rows = dict(transitions(MINATAR, 32))
    rows |= {"reward": np.linspace(-1, 1, 32, dtype=np.float32), "discount": np.zeros(32, np.float32)}
    losses = [float(algorithm.learn(rows).metrics["total_loss"]) for _ in range(150)]
    assert losses[-1] < losses[0] / 20


def test_policy_and_value_share_what_reads_the_image() -> None:
    state = algorithm_of(PpoConfig(), FRAMES).acting_state()
    heads = {name: array.shape for name, array in state.items() if name.startswith(("policy", "value"))}
    assert heads == {
        "policy.0.weight": (3, 512),
        "policy.0.bias": (3,),
        "value.0.weight": (1, 512),
        "value.0.bias": (1,),
    }
    assert not any(name.startswith("observations") for name in state), "a picture of moments would travel every time"
