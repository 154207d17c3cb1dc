"""The suites: their environments, and what was published about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WITHOUT_MEMORY = ("dqn", "rainbow", "bootstrapped_dqn", "pqn", "ppo", "impala", "sac")


@dataclass(frozen=True)
class Suite:
    """Environments that every algorithm learns with the settings that `--env` takes."""

    environments: Mapping[str, str]
    """What `--env` takes, by the name in tables."""
    algorithms: tuple[str, ...]
    max_env_steps: int
    metric: str
    """The number in tables."""
    source: str
    """Where published numbers are from, and how they were measured; or why there are none."""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    """Numbers of others, by column and environment."""
    evaluations: int = 20
    """Of a run, evenly over its steps."""
    episodes: int = 20
    """Of each evaluation."""
    settings: tuple[str, ...] = ()
    """Those that the suite itself asks for, the same in all its environments, in the form of `--set`."""
    settings_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Those that it asks for of an algorithm, such as a memory."""


_FAMILIES = (
    *(f"{task}{kind}" for kind in ("", "_noise", "_scale") for task in ("bandit", "catch", "cartpole", "mountain_car")),
    *("cartpole_swingup", "deep_sea", "deep_sea_stochastic"),
    *("discounting_chain", "umbrella_length", "umbrella_distract", "memory_len", "memory_size"),
)
_GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
_ROOMS = ("Empty-5x5", "FourRooms", "DoorKey-5x5", "LavaGapS5")
_MEMORIES = (
    *(f"{task}{size}" for task in ("RepeatFirst", "RepeatPrevious", "CountRecall") for size in ("Easy", "Medium")),
    *("AutoencodeEasy", "PositionOnlyCartPoleEasy", "HigherLowerEasy"),
)

SUITES: Mapping[str, Suite] = {
    "bsuite": Suite(
        {family: "bsuite:load_and_record_to_csv" for family in _FAMILIES},
        (*WITHOUT_MEMORY, "r2d2", "muzero"),
        1_000_000,
        "score from 0 to 1 by bsuite's own analysis, of the episodes in training",
        "Osband et al. 2020 show scores as a picture only, so no numbers stand here. A run of fewer "
        "episodes than bsuite asks for is scored by those that it had. The three families of MNIST are left out, since "
        "they download.",
        evaluations=1,
        episodes=1,
        settings=("env.num_envs=1", "env.vectorization=sync", "env.kwargs.overwrite=true"),
    ),
    "minatar": Suite(
        {game: f"MinAtar/{game}-v1" for game in _GAMES},
        (*WITHOUT_MEMORY, "r2d2", "muzero"),
        5_000_000,
        "mean return of the last three evaluations",
        "Young and Tian 2019 show curves of 5 million frames as a picture only, so no numbers stand here.",
    ),
    "popgym": Suite(
        {task: f"popgym:popgym-{task}-v0" for task in _MEMORIES},
        ("ppo", "pqn", "impala", "r2d2"),
        15_000_000,
        "highest mean return of an evaluation",
        "Morad et al. 2023 have tables of 15 million steps, which nobody has copied here.",
        settings_of={name: ("policy.recurrent=gru",) for name in ("ppo", "pqn", "impala", "r2d2")},
    ),
    "minigrid": Suite(
        {room: f"minigrid:MiniGrid-{room}-v0" for room in _ROOMS},
        (*WITHOUT_MEMORY, "r2d2"),
        500_000,
        "mean return of the last three evaluations",
        "The authors of these rooms publish no table.",
    ),
}
