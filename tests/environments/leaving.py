"""An environment whose agents leave at different steps, and which remembers what each of them did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from remuda.environments.spaces import Array, Space


@dataclass(frozen=True)
class Done:
    """One step of one agent."""

    agent: str
    episode: int
    step: int
    """From 0."""
    action: int
    reward: float
    terminated: bool
    truncated: bool

    @property
    def seen(self) -> tuple[float, float, float]:
        """What the agent saw before it."""
        return (float(int(self.agent[1:])), float(self.step), float(self.episode))


Stepped = tuple[dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class Leaving:
    """Agents a0, a1 … leave after as many steps as `lengths` says; those at odd places are truncated. An agent sees its
    number, the step and the number of the episode; its reward is 100 times its number plus the step, from 1. With
    `late` the last agent comes only after that number of steps; in its step `fails_at`, over all episodes, it fails."""

    def __init__(self, lengths: Sequence[int], *, late: int = 0, fails_at: int | None = None) -> None:
        self.possible_agents = [f"a{number}" for number in range(len(lengths))]
        self.agents: list[str] = []
        self.log: list[Done] = []
        self.steps = 0
        self.seeds: list[int | None] = []
        self.closed = False
        self.replaced = False
        self._lengths, self._late, self._fails_at = lengths, late, fails_at
        self._episode, self._step = -1, 0

    def observation_space(self, agent: str) -> Space:
        return gymnasium.spaces.Box(-1.0, 1e6, (3,), np.float32)

    def action_space(self, agent: str) -> Space:
        return gymnasium.spaces.Discrete(3)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        self.seeds.append(seed)
        self._episode, self._step = self._episode + 1, 0
        self.agents = self.possible_agents[: -1 if self._late else None]
        return {agent: self._seen(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Stepped:
        assert set(actions) == set(self.agents), "exactly those act who are there"
        assert all(type(action) is int and 0 <= action < 3 for action in actions.values())
        self.steps += 1
        if self.steps == self._fails_at:
            raise RuntimeError("the floor gave way")
        self._step += 1
        observations: dict[str, Array] = {}
        rewards, terminated, truncated = dict[str, float](), dict[str, bool](), dict[str, bool]()
        for agent in self.agents:
            number = int(agent[1:])
            over = self._step == self._lengths[number]
            observations[agent], rewards[agent] = self._seen(agent), float(100 * number + self._step)
            terminated[agent], truncated[agent] = over and number % 2 == 0, over and number % 2 == 1
            self.log.append(
                Done(
                    agent, self._episode, self._step - 1, actions[agent], rewards[agent],
                    terminated[agent], truncated[agent],
                )
            )  # fmt: skip
        infos: dict[str, dict[str, Any]] = {agent: {"speed": 2.0 * self._step} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not (terminated[agent] or truncated[agent])]
        if self._late and self._step == self._late:
            newcomer = self.possible_agents[-1]
            self.agents.append(newcomer)
            observations[newcomer], infos[newcomer] = self._seen(newcomer), {}
        return observations, rewards, terminated, truncated, infos

    def close(self) -> None:
        self.closed = True

    @property
    def step_of_episode(self) -> int:
        return self._step

    def _seen(self, agent: str) -> Array:
        return np.array([int(agent[1:]), self._step, self._episode], np.float32)
