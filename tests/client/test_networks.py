"""What is promised of `policy.network`: a whole network of a user learns, acts, resumes and is exported."""

# torch's annotations are partial.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remuda
from remuda.config.errors import ConfigError
from remuda.config.schema import ExperimentConfig
from remuda.config.user_code import UserCodeError
from remuda.policy.algorithms import make_algorithm, make_policy
from remuda.policy.base import Algorithm
from remuda.policy.networks.program import PROGRAM, decoded
from remuda.policy.spaces import ActionSpec, ObservationSpec
from remuda.tests.policy.algorithms import segments
from remuda.tests.policy.cases import answered, transitions
from remuda.tests.policy.files.exported import numbers

MINE = '''
import torch
from torch import nn

def values(observation, action, width=8, each=1):
    return nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, action.n * each))

class Odd(nn.Module):
    """Numpy does not know this module; it has a buffer, and weights that are computed of others."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(inputs, outputs))
        self.register_buffer("offset", torch.arange(outputs, dtype=torch.float32))

    def forward(self, numbers):
        return torch.sin(self.layer(numbers)) + self.offset

def odd(observation, action, each=1):
    return Odd(4, action.n * each)

class Both(nn.Module):
    def __init__(self, encoder, features, outputs, action_numbers=0, values=1):
        super().__init__()
        if encoder is not None:
            self.encoder = encoder
        self.actor = nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, outputs))
        self.critic = nn.Sequential(nn.Linear(features + action_numbers, 8), nn.ReLU(), nn.Linear(8, values))

def both(observation, action, **sizes):
    return Both(None, 4, **{"outputs": action.outputs, **sizes})

def encoded(observation, action, **sizes):
    return Both(Odd(4, 6), 6, **{"outputs": action.outputs, **sizes})

def of_images(observation, action):
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten())
    return Both(encoder, 4 * 5 * 5, action.outputs, action.outputs)

KEPT = Both(None, 4, 2, 2)

def wrong(observation, action, how):
    if how == "raises":
        raise KeyError("size")
    made = Both(None, 4, 2, 2)
    if how == "headless":
        del made.critic
    if how == "function":
        del made.actor
        made.actor = lambda observations: observations
    if how == "wide":
        made.actor = nn.Linear(4, 7)
    if how == "flat":
        made.critic = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    if how == "fixed":
        made.actor = nn.AdaptiveAvgPool1d(2)
    return {"list": [], "kept": KEPT}.get(how, made)
'''
SEEN = ObservationSpec((4,), "float32")
COUNTED, BOX = ActionSpec(2), ActionSpec(None, 0, "float32", (2,), (-1.0, -1.0), (1.0, 1.0))
CASES: dict[str, tuple[dict[str, Any], ActionSpec, bool]] = {
    "dqn, odd": ({"network": "mine:odd"}, COUNTED, False),
    "rainbow": ({"network": "mine:values", "network_kwargs": {"each": 11}, "atoms": 11, "noisy": False}, COUNTED, True),
    "ppo": ({"network": "mine:both"}, COUNTED, True),
    "impala": ({"network": "mine:both", "normalize_observations": True}, COUNTED, True),
    "sac": ({"network": "mine:both", "network_kwargs": {"outputs": 4, "action_numbers": 2}}, BOX, True),
    "sac, odd": ({"network": "mine:encoded", "network_kwargs": {"outputs": 4, "action_numbers": 2}}, BOX, False),
    "td3": ({"network": "mine:both", "network_kwargs": {"action_numbers": 2}}, BOX, True),
}
"""Settings, actions, and whether numpy computes the network where it acts."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def config(folder: Path, policy: dict[str, Any], **sections: object) -> ExperimentConfig:
    settings = {"name": "case", "env": {"id": "CartPole-v1"}, "policy": policy, "source_dir": str(folder), **sections}
    return ExperimentConfig.model_validate(settings)


def rows(rng: np.random.Generator, action: ActionSpec, *, in_segments: bool) -> dict[str, np.ndarray]:
    if in_segments:
        return segments.batch(rng, action=action)
    return transitions(numbers, action, rng)


def weights(algorithm: Algorithm) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in algorithm.acting_state().items()}


@pytest.mark.parametrize("name", CASES)
def test_it_learns_acts_alike_on_all_sides_and_resumes(name: str, folder: Path) -> None:
    settings, action, readable = CASES[name]
    kind, rng = name.partition(",")[0], np.random.default_rng(0)
    case = config(folder, {"type": kind, **settings})
    algorithm, acts = make_algorithm(case, SEEN, action, 0), make_policy(case, SEEN, action)
    begun = weights(algorithm)
    batches = [rows(rng, action, in_segments=kind in ("ppo", "impala")) for _ in range(3)]
    for batch in batches[:2]:
        algorithm.learn(batch)
    learned = weights(algorithm)
    own = [key for key in begun if key.endswith(("weight", "original1"))]
    assert own
    assert all((learned[key] != begun[key]).any() for key in own), "gradients reach all of it"

    published = algorithm.published_state()
    assert (None not in decoded(published[PROGRAM]).values()) == readable
    acts.load_state(published)
    seen = rng.normal(size=(20, 4)).astype(np.float32)
    portable = algorithm.portable()
    assert portable is not None
    best, value = (answered(portable.eval(), method, seen) for method in ("act", "value"))
    np.testing.assert_allclose(acts.act(seen, {}, rng, deterministic=True), best, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(acts.value(seen), value, rtol=1e-4, atol=1e-4)
    portable.train()

    resumed = make_algorithm(case, SEEN, action, 0)
    resumed.load_state(algorithm.state())
    for each in (algorithm, resumed):
        each.learn(batches[2])
    after = weights(algorithm)
    for key, array in weights(resumed).items():
        np.testing.assert_array_equal(array, after[key], err_msg=key)


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        ({"type": "impala", "network": "nets:ActorCritic", "network_kwargs": {"width": 8}}, BOX),
        ({"type": "sac", "network": "nets:Soft"}, BOX),
        ({"type": "dqn", "network": "nets:values"}, COUNTED),
    ],
)
def test_the_examples_of_the_page_are_networks(policy: dict[str, Any], action: ActionSpec, tmp_path: Path) -> None:
    page = (Path(remuda.__file__).parent / "docs" / "encoders.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(# nets.py.*?)```", page, re.DOTALL)
    (tmp_path / "nets.py").write_text(example)
    case = config(tmp_path, policy)
    algorithm, acts = make_algorithm(case, SEEN, action, 0), make_policy(case, SEEN, action)
    acts.load_state(algorithm.published_state())
    assert acts.act(np.zeros((3, 4), np.float32), {}, np.random.default_rng(0), deterministic=True).shape[0] == 3


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "the function raised KeyError: 'size'"),
        ("headless", "its module has no `critic`; it should have modules `actor` and `critic`"),
        ("wide", r"for two observations its actor gave shape \(2, 7\), and should give \(2, 2\)"),
        ("flat", r"for two observations its critic gave shape \(2,\), and should give \(2, 1\)"),
        ("kept", "two calls of the function gave modules with the same weights"),
    ],
)
def test_what_is_no_network_is_said(how: str, said: str, folder: Path) -> None:
    case = config(folder, {"type": "td3", "network": "mine:wrong", "network_kwargs": {"how": how}})
    with pytest.raises(UserCodeError, match=rf"policy\.network = 'mine:wrong': {said}"):
        make_algorithm(case, SEEN, BOX, 0)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"type": "dqn", "dueling": False}, r"in place of dueling, too: .* \(the default of dueling is true\)"),
        ({"type": "td3", "encoder": "remuda.learning:simba"}, "in place of encoder, too"),
        ({"type": "ppo", "recurrent": "gru"}, "leave recurrent out, or bring .* as encoder"),
        ({"type": "rainbow"}, "set noisy to false"),
        ({"type": "r2d2"}, "r2d2 takes no network: bring the part that reads observations as encoder"),
        ({"type": "dqn", "network": None, "network_kwargs": {"width": 3}}, "name it, or leave them out"),
    ],
)
def test_a_config_that_cannot_have_it_starts_nothing(policy: dict[str, Any], said: str, tmp_path: Path) -> None:
    settings = {"name": "x", "env": {"id": "CartPole-v1"}, "policy": {"network": "mine:values", **policy}}
    with pytest.raises(ConfigError, match=said):
        remuda.train(settings, run_dir=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
