"""MuZero's search: how many simulations a second, and how much of its time is not the network's.

One simulation adds one node to the tree of one root. `search` is the whole with the perceptrons of CartPole (latent
states of 128 numbers, distributions over 601 atoms, random weights), against the same network asked for as many nodes
without a tree, and beside LightZero's search with such a network. `trees` is all but the network: the model is a table
of numbers drawn beforehand, and LightZero's trees are given the same ones.
"""

# torch's annotations are partial: pyright does not know what manual_seed takes.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import functools

import numpy as np
import torch

from remuda.benchmarks.figure import Figure, compare, main
from remuda.benchmarks.peers import peer
from remuda.benchmarks.replay import calls_per_s
from remuda.config.algorithms.muzero import MuZeroConfig
from remuda.policy.algorithms.muzero.acting import SearchModel
from remuda.policy.algorithms.muzero.models import PerceptronNetwork
from remuda.policy.algorithms.muzero.networks import Support
from remuda.policy.algorithms.muzero.search.rules import Actions, Floats, Nodes, SearchSettings
from remuda.policy.algorithms.muzero.search.search import new_tree, search
from remuda.worker.process import bound_threads

ROOTS = (8, 64, 256)
GAMES = {"CartPole": (2, 25), "Atari": (18, 50)}
"""Actions and simulations, as MuZero has them by default."""

GOAL = ">= 5"
_SECONDS = 2.0


class Table:
    """A model that says what was drawn beforehand, whatever it is asked for."""

    def __init__(self, roots: int, actions: int, simulations: int) -> None:
        rng, nodes = np.random.default_rng(0), simulations + 1
        self._prior: Floats = rng.dirichlet(np.ones(actions), (nodes, roots)).astype(np.float32)
        self._value = rng.random((nodes, roots), np.float32)
        self._reward = rng.random((nodes, roots), np.float32)

    def begin(self, observations: None, simulations: int) -> tuple[Floats, Floats]:
        """Say the same of the roots every time."""
        return self._prior[0], self._value[0]

    def expand(self, parents: Nodes, actions: Actions, node: int) -> tuple[Floats, Floats, Floats]:
        """Say the same of a node every time."""
        return self._reward[node], self._prior[node], self._value[node]


def figures(peers: bool) -> list[Figure]:
    """Simulations per second with 8, 64 and 256 roots."""
    bound_threads()
    found: list[Figure] = []
    for roots in ROOTS:
        model = _perceptrons()
        found += compare(
            f"search, {roots} roots",
            unit="simulations/s",
            goal=">= 0",  # the share of its time that is the network's: no goal was set
            ours=functools.partial(_searched_per_s, model, roots),
            references={"the network alone": functools.partial(_evaluated_per_s, model, roots)},
        )
        if peers:
            found += compare(
                f"search with the network, {roots} roots",
                unit="simulations/s",
                goal=GOAL,
                ours=functools.partial(_searched_per_s, model, roots),
                references={"lightzero": peer("lightzero", "whole_search", str(roots), "25", str(_SECONDS))},
            )
        for game, (actions, simulations) in GAMES.items() if peers else ():
            arguments = (str(roots), str(actions), str(simulations), str(_SECONDS))
            found += compare(
                f"trees, {roots} roots, {actions} actions and {simulations} simulations as in {game}",
                unit="simulations/s",
                goal=GOAL,
                ours=functools.partial(_trees_per_s, roots, actions, simulations),
                references={"lightzero": peer("lightzero", "search", *arguments)},
            )
    return found


def _perceptrons() -> SearchModel:
    torch.manual_seed(0)
    network = PerceptronNetwork(MuZeroConfig(), features=4, actions=2, trains=False).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)  # the heads begin at zero, and all actions would be alike
    return SearchModel(network.frozen(Support(300)), torch.device("cpu"))


def _searched_per_s(model: SearchModel, roots: int) -> float:
    actions, simulations = GAMES["CartPole"]
    settings, observations = SearchSettings(simulations), _observations(roots)
    tree = new_tree(roots, actions, settings)
    searches = calls_per_s(lambda: search(model, observations, settings, tree=tree), seconds=_SECONDS)
    return searches * roots * simulations


def _evaluated_per_s(model: SearchModel, roots: int) -> float:
    """The same calls of the model, for nodes that no tree has chosen."""
    actions, simulations = GAMES["CartPole"]
    observations, rng = _observations(roots), np.random.default_rng(0)
    parents = (rng.random((simulations, roots)) * np.arange(1, simulations + 1)[:, None]).astype(np.int32)
    taken = rng.integers(actions, size=(simulations, roots))

    def evaluate() -> None:
        model.begin(observations, simulations)
        for node in range(1, simulations + 1):
            model.expand(parents[node - 1], taken[node - 1], node)

    return calls_per_s(evaluate, seconds=_SECONDS) * roots * simulations


def _trees_per_s(roots: int, actions: int, simulations: int) -> float:
    settings, model = SearchSettings(simulations), Table(roots, actions, simulations)
    tree = new_tree(roots, actions, settings)
    return calls_per_s(lambda: search(model, None, settings, tree=tree), seconds=_SECONDS) * roots * simulations


def _observations(roots: int) -> Floats:
    return np.random.default_rng(0).standard_normal((roots, 4), np.float32)


if __name__ == "__main__":
    main(figures)
