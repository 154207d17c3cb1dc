"""The rule of the search written the plain way: an object per node, one root at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from remuda.policy.algorithms.muzero.search.settings import SearchSettings


class PlainNode:
    def __init__(self, prior: Sequence[float], value: float, reward: float = 0.0) -> None:
        self.prior = prior
        self.reward = reward
        self.values = [value]
        self.children: dict[int, PlainNode] = {}

    @property
    def mean(self) -> float:
        total = 0.0
        for value in self.values:
            total += value
        return total / len(self.values)


class PlainTree:
    def __init__(self, prior: Sequence[float], value: float, legal: Sequence[bool], settings: SearchSettings) -> None:
        self.root = PlainNode(prior, value)
        self.legal = legal
        self.settings = settings
        self.discount = settings.discount if settings.players == 1 else -settings.discount
        self.seen: list[float] = []
        self.path: list[tuple[PlainNode, int]] = []
        self.nodes = [self.root]

    def q(self, node: PlainNode) -> float:
        return node.reward + self.discount * node.mean

    def normalized(self, value: float) -> float:
        if not self.seen:
            return 0.0
        scale = 1.0 / max(max(self.seen) - min(self.seen), self.settings.value_delta_min)
        return min(max((value - min(self.seen)) * scale, 0.0), 1.0)

    def select(self) -> tuple[int, int]:
        self.path = []
        node, above = self.root, None
        while True:
            tried = 0.0
            for action in sorted(node.children):
                tried += self.q(node.children[action])
            seen = len(node.children)
            mean = tried / max(seen, 1) if above is None else (above + tried) / (seen + 1)
            action = max(range(len(node.prior)), key=lambda action: self.rank(node, action, mean))
            self.path.append((node, action))
            if action not in node.children:
                return self.nodes.index(node), action
            node, above = node.children[action], mean if self.settings.players == 1 else -mean

    def rank(self, node: PlainNode, action: int, mean: float) -> tuple[bool, float, float, int]:
        """Legal before illegal, then the score, then the prior, then the lowest action."""
        child = node.children.get(action)
        made, simulations = len(child.values) if child else 0, len(node.values) - 1
        base, init = self.settings.pb_c_base, self.settings.pb_c_init
        explore = (math.log((simulations + base + 1) / base) + init) * math.sqrt(simulations)
        prior = node.prior[action]
        score = explore / (made + 1) * prior + self.normalized(self.q(child) if child else mean)
        return node is not self.root or self.legal[action], score, prior, -action

    def expand(self, reward: float, prior: Sequence[float], value: float) -> None:
        parent, action = self.path[-1]
        parent.children[action] = PlainNode(prior, value, reward)
        self.nodes.append(parent.children[action])
        for node, taken in reversed(self.path):
            child = node.children[taken]
            self.seen.append(self.q(child))
            value = child.reward + self.discount * value
            node.values.append(value)

    def visits(self) -> list[int]:
        children = self.root.children
        return [len(children[action].values) if action in children else 0 for action in range(len(self.root.prior))]

    def q_values(self) -> list[float]:
        children = self.root.children
        return [self.q(children[action]) if action in children else 0.0 for action in range(len(self.root.prior))]
