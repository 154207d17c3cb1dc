"""A game for two: the speaker sees the door that hides the prize, the listener only hears the speaker's word.

In the first step the speaker says a word, in the second the listener opens a door. Both get 1 for the right door. The
interface is pettingzoo.ParallelEnv; the package is not needed.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

DOORS = 3


class SpeakerListener:
    """A game in which the agents invent the meaning of words."""

    possible_agents = ("speaker", "listener")

    def __init__(self) -> None:
        self.agents: list[str] = []
        self._word: int | None = None
        self._seen_by = {agent: gymnasium.spaces.Box(0.0, 1.0, (DOORS + 1,)) for agent in self.possible_agents}
        self._chosen_by = {agent: gymnasium.spaces.Discrete(DOORS) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        """Return the space: the door (speaker) or the word (listener) as a one-hot vector, and a flag for the presence
        of a word."""
        return self._seen_by[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Discrete:
        """A word, or a door."""
        return self._chosen_by[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._door, self._word = int(self._rng.integers(DOORS)), None
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        over, reward = self._word is not None, 0.0
        if over:
            reward = float(actions["listener"] == self._door)
        self._word = actions["speaker"]
        seen, played = self._seen(), list(self.agents)
        if over:
            self.agents = []
        nobody, all_of = dict.fromkeys(played, False), dict.fromkeys(played, over)
        return seen, dict.fromkeys(played, reward), all_of, nobody, {agent: {} for agent in played}

    def close(self) -> None:
        """Do nothing: the game holds no resources."""

    def _seen(self) -> dict[str, np.ndarray]:
        said = self._word is not None
        heard = np.zeros(DOORS + 1, np.float32)
        door = np.zeros(DOORS + 1, np.float32)
        door[self._door], door[DOORS], heard[DOORS] = 1.0, said, said
        if self._word is not None:
            heard[self._word] = 1.0
        return {"speaker": door, "listener": heard}


def make() -> SpeakerListener:
    """Build the game."""
    return SpeakerListener()
