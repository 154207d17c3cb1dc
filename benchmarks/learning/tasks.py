"""What is learned: an algorithm in an environment, up to a return or for a number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from remuda.benchmarks.peers import ROOT
from remuda.config.algorithms.registry import BUILT_IN


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
    """Number of seeds."""
    interval_env_steps: int
    """Environment steps between evaluations."""
    episodes: int = 20
    """Of each evaluation."""
    deadline_s: float = 3_600.0
    """Of one run of one side."""
    config: str | None = None
    """The file of the settings, below the root of the repository; None takes those that are stored for the algorithm in
    this environment."""
    overrides: tuple[str, ...] = ()
    """Settings that differ from those, in the form of `--set`."""
    variant: str = ""
    """What these settings are called, where an algorithm has several tasks in an environment: feed_forward."""
    policies: tuple[str, ...] = ()
    """Names of the policies of a run with several; the return of an evaluation is then the lowest of theirs."""
    solvable: bool = True
    """Whether every run should reach `stop_value`; False: none may, since the task takes what these settings lack."""
    peer: bool = False
    """Whether stable-baselines3 has the algorithm, and tuned settings for it."""
    by_default: bool = True
    """Whether it is run where no task is named; False: one run takes a day, without a GPU."""
    wall_goal: str = "<= 0.5"
    """Of our seconds divided by those of the peer."""
    command: Literal["train", "launch"] = "train"
    """`launch` collects while it learns."""
    first_seed: int = 0
    """Seeds before this one helped to choose the settings, and prove nothing."""

    @property
    def name(self) -> str:
        """For the command line, and for files."""
        variant = f"_{self.variant}" if self.variant else ""
        return f"{self.environment}_{self.algorithm}{variant}".lower()

    @property
    def environment(self) -> str:
        """The environment's part of the name: all its tasks are in one picture."""
        return self.env_id.rpartition("/")[2].partition("-")[0].lower()

    @property
    def label(self) -> str:
        """For pictures: the algorithm, and what its settings are called."""
        return " ".join([self.algorithm.upper(), *self.variant.split("_")]).strip()


def _maze(
    algorithm: str,
    config: str,
    *,
    solvable: bool,
    variant: str = "",
    overrides: tuple[str, ...] = (),
    max_env_steps: int = 200_000,
) -> Task:
    """A maze that takes memory: without it 0 is the best possible mean return."""
    return Task(
        algorithm,
        "TMaze",
        0.95,
        max_env_steps,
        seeds=3,
        interval_env_steps=5_000,
        config=config,
        overrides=overrides,
        variant=variant,
        solvable=solvable,
    )


def _sea(algorithm: str, *overrides: str) -> Task:
    """A treasure that twelve right actions in a row find. The environment has no chance, so an episode shows all."""
    return Task(
        algorithm,
        "DeepSea",
        0.98,
        50_000,
        seeds=10,
        interval_env_steps=500,
        episodes=1,
        config="examples/deep_sea.yaml",
        overrides=overrides,
        solvable=algorithm != "dqn",
    )


def _pong(algorithm: str, max_env_steps: int) -> Task:
    """Raw points; 21 is a perfect game. The settings were chosen by runs of seeds 0 to 3."""
    return Task(
        algorithm,
        "ALE/Pong-v5",
        18.0,
        max_env_steps,
        seeds=2,
        first_seed=4,
        interval_env_steps=150_000,
        episodes=5,
        deadline_s=7 * 86_400.0,
        by_default=False,
        command="launch",
    )


def _mujoco(algorithm: str, env_id: str, wall_goal: str) -> Task:
    """A million environment steps."""
    return Task(
        algorithm,
        env_id,
        None,
        1_000_000,
        seeds=3,
        interval_env_steps=20_000,
        episodes=10,
        deadline_s=21_600.0,
        peer=True,
        wall_goal=wall_goal,
    )


_CONSTANT = "learner.learning_rate=0.001"


def _crossq(env_id: str, *overrides: str, variant: str = "", first_seed: int = 1) -> Task:
    """CrossQ for 200,000 environment steps. Seeds 0, 11 and 12 helped to choose the settings."""
    return Task(
        "crossq",
        env_id,
        None,
        200_000,
        seeds=5,
        interval_env_steps=10_000,
        episodes=5,
        deadline_s=21_600.0,
        overrides=overrides,
        variant=variant,
        by_default=not overrides,
        first_seed=first_seed,
    )


TASKS = (
    Task("ppo", "CartPole-v1", 475.0, 100_000, seeds=10, interval_env_steps=5_000, peer=True),
    Task("dqn", "CartPole-v1", 475.0, 100_000, seeds=10, interval_env_steps=2_000, peer=True),
    Task("pqn", "CartPole-v1", 475.0, 200_000, seeds=10, interval_env_steps=2_500),
    Task("impala", "CartPole-v1", 475.0, 500_000, seeds=5, interval_env_steps=5_000),
    Task("rainbow", "CartPole-v1", 475.0, 100_000, seeds=10, interval_env_steps=2_000),
    Task("r2d2", "CartPole-v1", 475.0, 100_000, seeds=10, interval_env_steps=2_000),
    Task("sac", "CartPole-v1", 475.0, 100_000, seeds=5, interval_env_steps=2_000),
    Task("muzero", "CartPole-v1", 475.0, 200_000, seeds=3, interval_env_steps=1_000, episodes=10),
    Task(
        "dqn",
        "CartPole-v1",
        475.0,
        300_000,
        seeds=5,
        interval_env_steps=2_000,
        config="examples/cartpole_apex.yaml",
        variant="apex",
    ),
    Task("ppo", "Pendulum-v1", -200.0, 100_000, seeds=10, interval_env_steps=5_000, peer=True, first_seed=14),
    Task("sac", "Pendulum-v1", -200.0, 20_000, seeds=5, interval_env_steps=1_000, peer=True),
    Task("td3", "Pendulum-v1", -200.0, 20_000, seeds=5, interval_env_steps=1_000, peer=True),
    Task("crossq", "Pendulum-v1", -200.0, 20_000, seeds=10, interval_env_steps=1_000),
    Task("ppo", "MountainCarContinuous-v0", 90.0, 100_000, seeds=10, interval_env_steps=2_000, peer=True),
    Task("ppo", "Acrobot-v1", -100.0, 1_000_000, seeds=10, interval_env_steps=5_000, peer=True),
    Task("ppo", "LunarLander-v3", 200.0, 1_000_000, seeds=10, interval_env_steps=20_000, peer=True),
    Task("ppo", "LunarLanderContinuous-v3", 200.0, 1_000_000, seeds=10, interval_env_steps=20_000, peer=True),
    _maze("r2d2", "examples/t_maze_r2d2.yaml", solvable=True),
    _maze("ppo", "examples/t_maze_ppo.yaml", solvable=True, variant="recurrent"),
    _maze("pqn", "examples/t_maze_pqn.yaml", solvable=True, variant="recurrent"),
    _maze("impala", "examples/t_maze_impala.yaml", solvable=True, variant="recurrent"),
    _maze(
        "ppo",
        "examples/t_maze_ppo.yaml",
        solvable=False,
        variant="feed_forward",
        overrides=("policy.recurrent=null",),
    ),
    _maze("dqn", "benchmarks/configs/t_maze_dqn.yaml", solvable=False, max_env_steps=100_000),
    _sea("bootstrapped_dqn"),
    _sea("dqn", "policy={type: dqn}", "buffer.prioritized=true"),
    Task(
        "ppo",
        "SpeakerListener",
        0.99,
        60_000,
        seeds=5,
        interval_env_steps=1_000,
        episodes=60,
        config="examples/speaker_listener.yaml",
        policies=("speaker", "listener"),
    ),
    *(_mujoco("ppo", env_id, "<= 0.5") for env_id in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")),
    *(_mujoco("sac", env_id, "<= 0.4") for env_id in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")),
    *map(_crossq, ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")),
    *(
        _crossq(env_id, _CONSTANT, "policy.averaged_share=null", variant="newest_actor")
        for env_id in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
    ),
    *(_crossq(env_id, _CONSTANT, variant="constant_step") for env_id in ("Hopper-v5", "Walker2d-v5")),
    *(
        _crossq(
            env_id,
            _CONSTANT,
            "policy.averaged_share=null",
            "policy.atoms=null",
            "policy.initial_temperature=1",
            variant="single_values",
            first_seed=0,
        )
        for env_id in ("Hopper-v5", "Walker2d-v5")
    ),
    _pong("ppo", 10_000_000),
    _pong("impala", 10_000_000),
    _pong("dqn", 10_000_000),
    _pong("muzero", 100_000),
)
BY_NAME = {task.name: task for task in TASKS}


def config_file(task: Task) -> Path:
    """The file of its settings. Raises ValueError where none is stored."""
    if task.config is not None:
        return ROOT / task.config
    stored = BUILT_IN[task.algorithm].settings.stored_configs.get(task.env_id)
    if stored is None:
        raise ValueError(f"nothing is stored for {task.algorithm} on {task.env_id}: give the task a config")
    return stored
