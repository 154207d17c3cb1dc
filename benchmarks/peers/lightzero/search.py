"""Simulations per second of LightZero's compiled trees: arguments are roots, actions, simulations and seconds.

The model is a table of numbers drawn beforehand, the same as in benchmarks/search.py, so that nothing but the trees and
the passing of numbers to and from them is measured. Only its extension is loaded: importing the package brings torch.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import time
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

roots, actions, simulations, seconds = *map(int, sys.argv[1:4]), float(sys.argv[4])
folder = Path(sysconfig.get_paths()["platlib"], "lzero", "mcts", "ctree", "ctree_muzero")
file = next(folder.glob("mz_tree.*.so"))
spec = spec_from_file_location("mz_tree", file, loader=ExtensionFileLoader("mz_tree", str(file)))
mz_tree = module_from_spec(spec)
spec.loader.exec_module(mz_tree)

rng = np.random.default_rng(0)
nodes = simulations + 1
priors = rng.dirichlet(np.ones(actions), (nodes, roots)).astype(np.float32)
logits = np.log(np.maximum(priors, np.finfo(np.float32).tiny))
values = rng.random((nodes, roots), np.float32)
rewards = rng.random((nodes, roots), np.float32)
legal = [list(range(actions)) for _ in range(roots)]
nobody = [-1] * roots  # plays against the others


def search() -> None:
    """Search once from all roots."""
    trees = mz_tree.Roots(roots, legal)
    trees.prepare_no_noise(rewards[0].tolist(), logits[0].tolist(), nobody)
    bounds = mz_tree.MinMaxStatsList(roots)
    bounds.set_delta(0.01)
    for node in range(1, nodes):
        found = mz_tree.ResultsWrapper(roots)
        mz_tree.batch_traverse(trees, 19652, 1.25, 0.997, bounds, found, nobody)
        numbers = (rewards[node].tolist(), values[node].tolist(), logits[node].tolist())
        mz_tree.batch_backpropagate(node, 0.997, *numbers, bounds, found, nobody)
    trees.get_distributions()
    trees.get_values()


search()
searches, started_s = 0, time.perf_counter()
while (elapsed_s := time.perf_counter() - started_s) < seconds:
    search()
    searches += 1
print(json.dumps({"value": searches * roots * simulations / elapsed_s}))
