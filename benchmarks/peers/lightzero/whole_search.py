"""Simulations per second of LightZero's whole search, with its network: arguments are roots, simulations and seconds.

The network is its perceptrons for CartPole with random weights, its dynamics without the second block, as in
benchmarks/search.py. What its policy does around a search in evaluation is measured with it.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from easydict import EasyDict
from lzero.mcts import MuZeroMCTSCtree
from lzero.model.muzero_model_mlp import MuZeroModelMLP
from lzero.policy import InverseScalarTransform

roots, simulations, seconds = *map(int, sys.argv[1:3]), float(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(0)
model = MuZeroModelMLP(observation_shape=4, action_space_size=2, latent_state_dim=128, norm_type="BN").eval()
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.1)  # the heads begin at zero, and all actions would be alike
network = {"support_scale": 300, "categorical_distribution": True}
config = EasyDict({"num_simulations": simulations, "discount_factor": 0.997, "device": "cpu", "model": network})
trees, scalar = MuZeroMCTSCtree(config), InverseScalarTransform(300, "cpu", True)
observations = torch.from_numpy(np.random.default_rng(0).standard_normal((roots, 4), np.float32))
legal, nobody = [[0, 1] for _ in range(roots)], [-1] * roots


def search() -> None:
    """Search once from all roots."""
    with torch.no_grad():
        found = model.initial_inference(observations)
        scalar(found.value).detach().cpu().numpy()
        begun = trees.roots(roots, legal)
        begun.prepare_no_noise(found.reward, found.policy_logits.detach().cpu().numpy().tolist(), nobody)
        trees.search(begun, model, found.latent_state.detach().cpu().numpy(), nobody)
        begun.get_distributions()
        begun.get_values()


search()
searches, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    search()
    searches += 1
print(json.dumps({"value": searches * roots * simulations / elapsed_s}))
