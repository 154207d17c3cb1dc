"""The rules of the search in a simple form: an object per node, one root at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from remuda.policy.algorithms.muzero.search.rules import SearchSettings, visits_wanted


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

    def made(self, action: int) -> int:
        return len(self.children[action].values) if action in self.children else 0


class PlainTree:
    """By the rule of MuZero."""

    def __init__(self, prior: Sequence[float], value: float, legal: Sequence[bool], settings: SearchSettings) -> None:
        self.root = PlainNode(prior, value)
        self.actions = range(len(prior))
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
            tried, seen = 0.0, len(node.children)
            for action in sorted(node.children):
                tried += self.q(node.children[action])
            mean = tried / max(seen, 1) if above is None else (above + tried) / (seen + 1)
            action = max(self.actions, key=lambda action: self.rank(node, action, mean))
            self.path.append((node, action))
            if action not in node.children:
                return self.nodes.index(node), action
            node, above = node.children[action], mean if self.settings.players == 1 else -mean

    def rank(self, node: PlainNode, action: int, mean: float) -> tuple[bool, float, float, int]:
        """Legal before illegal, then the score, then the prior, then the lowest action."""
        child, made, simulations = node.children.get(action), node.made(action), len(node.values) - 1
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
        return [self.root.made(action) for action in self.actions]

    def q_values(self) -> list[float]:
        children = self.root.children
        return [self.q(children[action]) if action in children else 0.0 for action in self.actions]


class PlainGumbelTree(PlainTree):
    """By the rule of Gumbel MuZero."""

    def __init__(
        self,
        prior: Sequence[float],
        value: float,
        legal: Sequence[bool],
        noise: Sequence[float],
        settings: SearchSettings,
    ) -> None:
        super().__init__(prior, value, legal, settings)
        assert settings.gumbel is not None
        self.told, self.noise = settings.gumbel, noise
        self.seen = [value]
        considered = min(self.told.considered_actions, settings.simulations, sum(legal))
        self.wanted = visits_wanted(considered, settings.simulations).tolist()

    def expand(self, reward: float, prior: Sequence[float], value: float) -> None:
        self.seen.append(value)
        super().expand(reward, prior, value)

    def sigma(self, node: PlainNode, action: int) -> float:
        most = max(node.made(action) for action in self.actions)
        return (self.told.c_visit + most) * self.told.c_scale * self.normalized(self.completed(node, action))

    def completed(self, node: PlainNode, action: int) -> float:
        if action in node.children:
            return self.q(node.children[action])
        mass = sum(node.prior[tried] for tried in node.children) or 1.0
        weighted = sum(node.prior[tried] * self.q(child) for tried, child in node.children.items()) / mass
        simulations = len(node.values) - 1
        return (node.values[0] + simulations * weighted) / (1 + simulations)

    def improved_policy(self, node: PlainNode) -> list[float]:
        legal = [node is not self.root or self.legal[action] for action in self.actions]
        scores = [
            math.log(node.prior[action]) + self.sigma(node, action) if legal[action] else -math.inf
            for action in self.actions
        ]
        weights = [math.exp(score - max(scores)) for score in scores]
        return [weight / sum(weights) for weight in weights]

    def select(self) -> tuple[int, int]:
        node, self.path = self.root, []
        while True:
            if node is self.root:
                action = self.winner(self.wanted[len(self.nodes) - 1])
            else:
                policy, made = self.improved_policy(node), len(node.values) - 1
                gaps = [policy[action] - node.made(action) / (1 + made) for action in self.actions]
                action = gaps.index(max(gaps))
            self.path.append((node, action))
            if action not in node.children:
                return self.nodes.index(node), action
            node = node.children[action]

    def winner(self, wanted: int) -> int:
        """Winner among the root's legal actions that were simulated `wanted` times."""
        allowed = [action for action in self.actions if self.legal[action] and self.root.made(action) == wanted]
        return max(allowed, key=lambda a: self.noise[a] + math.log(self.root.prior[a]) + self.sigma(self.root, a))
