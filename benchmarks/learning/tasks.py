"""What is learned: an algorithm in an environment, up to a return or for a number of steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One comparison. Both sides play the same evaluations, of deterministic actions."""

    algorithm: str
    env_id: str
    stop_value: float | None
    """Mean return of an evaluation that ends a run; None: all runs train for `max_env_steps`, and returns are
    compared."""
    max_env_steps: int
    seeds: int
    """How many, from 0 on."""
    interval_env_steps: int
    """Environment steps between evaluations."""
    episodes: int = 20
    """Of each evaluation."""
    deadline_s: float = 3_600.0
    """Of one run of one side."""

    @property
    def name(self) -> str:
        """For the command line, and for files."""
        return f"{self.env_id.rpartition('/')[2].partition('-')[0]}_{self.algorithm}".lower()


TASKS = (
    Task("ppo", "CartPole-v1", 475.0, 100_000, seeds=5, interval_env_steps=5_000),
    Task("ppo", "Pendulum-v1", -200.0, 100_000, seeds=5, interval_env_steps=5_000),
    Task("ppo", "MountainCarContinuous-v0", 90.0, 100_000, seeds=5, interval_env_steps=2_000),
    Task("ppo", "Acrobot-v1", -100.0, 1_000_000, seeds=5, interval_env_steps=5_000),
    Task("ppo", "LunarLander-v3", 200.0, 1_000_000, seeds=5, interval_env_steps=20_000),
    Task("ppo", "LunarLanderContinuous-v3", 200.0, 1_000_000, seeds=5, interval_env_steps=20_000),
    Task("ppo", "HalfCheetah-v5", None, 1_000_000, seeds=3, interval_env_steps=20_000, episodes=10),
    Task("ppo", "Hopper-v5", None, 1_000_000, seeds=3, interval_env_steps=20_000, episodes=10),
    Task("ppo", "Walker2d-v5", None, 1_000_000, seeds=3, interval_env_steps=20_000, episodes=10),
)
BY_NAME = {task.name: task for task in TASKS}
