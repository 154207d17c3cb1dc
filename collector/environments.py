"""The environments that a collector steps under a lease: a vector of one agent each, or copies with several agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from remuda.collector.build import make_agents_rollout, make_rollout
from remuda.collector.collecting import Collecting, OneRollout
from remuda.collector.past import PastPlayers
from remuda.config.schema import ExperimentConfig
from remuda.environments.agents import make_agents_vector
from remuda.environments.record import record_agents, record_environment
from remuda.environments.spaces import Space
from remuda.environments.vectors import make_vector, single_spaces
from remuda.logbook.timers import Timers
from remuda.policy.base import Policy
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import Assign

Spaces = tuple[Space, Space]
"""Of observations and of actions."""


class Environments(Protocol):
    """Built, and not stepped yet. Policies are in the order of their names."""

    @property
    def said(self) -> str:
        """For the log: how they are stepped."""
        ...

    @property
    def spaces(self) -> Sequence[Spaces]:
        """Of each policy."""
        ...

    @property
    def past(self) -> PastPlayers | None:
        """In self-play: which agents older policies play."""
        ...

    def describe(self, folder: RunFolder) -> Sequence[str]:
        """Write what the environment is into the run folder; returns warnings."""
        ...

    def rollout(
        self, policies: Sequence[Policy], assign: Assign, *, progress: Callable[[int], None], timers: Timers
    ) -> Collecting:
        """What steps them with these policies."""
        ...

    def close(self) -> None:
        """Close them."""
        ...


def make_environments(
    config: ExperimentConfig, policies: Mapping[str, ExperimentConfig], *, broke: Callable[[str], None]
) -> Environments:
    """Build those of a run. `policies` are the settings of each policy, by name; `broke` gets a text for the log about
    each environment that is made again. Raises EnvironmentBuildError."""
    if config.env.kind == "pettingzoo":
        return _SeveralAgents(config, policies, broke)
    return _OneAgent(config, broke)


class _OneAgent:
    past = None

    def __init__(self, config: ExperimentConfig, broke: Callable[[str], None]) -> None:
        said: list[str] = []
        self._config = config
        self._vector = make_vector(
            config.env,
            num_envs=config.env.num_envs,
            source_dir=config.source_dir,
            sharers=config.collector.count,
            chosen=said.append,
            broke=broke,
        )
        self.said = " ".join(said)
        self.spaces: Sequence[Spaces] = [single_spaces(self._vector)]

    def describe(self, folder: RunFolder) -> Sequence[str]:
        return record_environment(folder, self._config, self._vector)

    def rollout(
        self, policies: Sequence[Policy], assign: Assign, *, progress: Callable[[int], None], timers: Timers
    ) -> Collecting:
        (policy,) = policies
        return OneRollout(
            make_rollout(
                self._config,
                self._vector,
                policy,
                index=assign.index,
                collectors=self._config.collector.count,
                generation=assign.generation,
                progress=progress,
                timers=timers,
            )
        )

    def close(self) -> None:
        self._vector.close()


class _SeveralAgents:
    def __init__(
        self, config: ExperimentConfig, policies: Mapping[str, ExperimentConfig], broke: Callable[[str], None]
    ) -> None:
        self._config, self._policies = config, policies
        assigned = {name: own.env.agents for name, own in policies.items()}
        self._vector = make_agents_vector(
            config.env, assigned, num_envs=config.env.num_envs, source_dir=config.source_dir, broke=broke
        )
        share, keep = config.self_play.share, config.self_play.keep
        self.past = PastPlayers(self._vector, share, keep) if share else None
        groups = [lanes.group for lanes in self._vector.lanes]
        self.spaces: Sequence[Spaces] = [(group.observation, group.action) for group in groups]
        self.said = f"environments: {config.env.num_envs} copies in this process, agents: {len(config.env.agents)}"

    def describe(self, folder: RunFolder) -> Sequence[str]:
        return record_agents(folder, config=self._config, vector=self._vector, policies=list(self._policies))

    def rollout(
        self, policies: Sequence[Policy], assign: Assign, *, progress: Callable[[int], None], timers: Timers
    ) -> Collecting:
        return make_agents_rollout(
            self._config,
            self._vector,
            list(zip(self._policies.values(), policies, strict=True)),
            index=assign.index,
            collectors=self._config.collector.count,
            past=self.past,
            generation=assign.generation,
            progress=progress,
            timers=timers,
        )

    def close(self) -> None:
        self._vector.close()
